// The field for a sound: a file, which is heard here and sent in base64.

import { byId } from './dom.js';
import { base64 } from './picture.js';
import { visible } from './words.js';

const MOST_BYTES = 5_000_000;

export class SoundError extends Error {}

export async function readSound(file) {
  if (file.size > MOST_BYTES) throw new SoundError('This file is too large: at most 5 MB of sound are taken.');
  byId('player').src = URL.createObjectURL(file);
  byId('player').hidden = false;
  byId('sound-hint').textContent = visible(file.name || 'sound');
  return { name: file.name || 'sound', sent: await base64(file) };
}

/** `use` hears the file. */
export function listenToSounds(use) {
  const field = byId('sound');
  field.addEventListener('change', () => field.files[0] && use(field.files[0]));
}
