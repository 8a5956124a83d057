// The field for a picture: chosen, or dropped anywhere on the page.

import { byId } from './dom.js';
import { visible } from './words.js';

const HINT = 'Drop a picture here, or choose a file';
const SMALLER = 'A link will hold a smaller copy of this picture.';

export function preview(picture) {
  const canvas = byId('preview');
  canvas.hidden = !picture;
  byId('picture-hint').textContent = picture ? visible(picture.name) : HINT;
  byId('picture-note').textContent = picture && !picture.small ? SMALLER : '';
  if (!picture) return;
  [canvas.width, canvas.height] = [picture.bitmap.width, picture.bitmap.height];
  canvas.getContext('2d').drawImage(picture.bitmap, 0, 0);
}

/** `use` hears the file, if pictures are `wanted` just now. */
export function listenToPictures(wanted, use) {
  const field = byId('picture');
  field.addEventListener('change', () => field.files[0] && use(field.files[0]));
  const falls = (event) => wanted() && event.dataTransfer?.types.includes('Files');
  addEventListener('dragover', (event) => {
    if (!falls(event)) return;
    event.preventDefault();
    byId('drop').classList.add('over');
  });
  addEventListener('dragleave', (event) => event.relatedTarget || byId('drop').classList.remove('over'));
  addEventListener('drop', (event) => {
    if (!falls(event)) return;
    event.preventDefault();
    byId('drop').classList.remove('over');
    if (event.dataTransfer.files[0]) use(event.dataTransfer.files[0]);
  });
}
