// What is kept of the page: a file of the heat maps, or a link to them.

import { byId } from './dom.js';
import { addressOf, file } from './service.js';

/** The explained question drawn by the service, saved under a plain name. */
export async function download(model, body, format) {
  const blob = await file(addressOf(model, ':render'), { ...body, format });
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(blob);
  anchor.download = `relprop.${format}`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60_000);
}

/** Shows the link, selected, and copies it where the browser lets a page do so. */
export async function share(link) {
  byId('link').value = link;
  byId('link-field').hidden = false;
  byId('link').select();
  const copied = await navigator.clipboard?.writeText(link).then(() => true, () => false);
  return copied ? 'Link copied.' : 'The link is selected: copy it.';
}
