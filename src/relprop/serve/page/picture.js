// A picture file, ready to be sent, shown and put in a link.

const READ = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp']; // by the service
const MOST_PIXELS = 4_000_000;
const MOST_BYTES = 4_000_000;
const LONGEST = 1600; // pixels of the longer side, where a picture must be made smaller
const SMALL = { bytes: 24_000, side: 256 }; // a file goes into a link as it is
const COPY = 256; // pixels of the longer side of one that does not

export class PictureError extends Error {}

/** In base64: `sent` is for the service, `light` for links and whatever else must be small: the same, or a copy. */
export async function readPicture(file) {
  const bitmap = await decoded(file);
  const fits = READ.includes(file.type) && bitmap.width * bitmap.height <= MOST_PIXELS && file.size <= MOST_BYTES;
  const blob = fits ? file : await smaller(bitmap, LONGEST);
  const small = blob.size <= SMALL.bytes && Math.max(bitmap.width, bitmap.height) <= SMALL.side;
  return {
    name: file.name || 'picture',
    bitmap: fits ? bitmap : await createImageBitmap(blob),
    sent: await base64(blob),
    light: await base64(small ? blob : await smaller(bitmap, COPY)),
    small,
    whole: fits, // sent as the file that it was
  };
}

export const forLink = ({ light }) => light.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

/** The picture that a link carries. */
export async function fromLink(carried, name) {
  const encoded = carried.replaceAll('-', '+').replaceAll('_', '/');
  let bytes;
  try {
    bytes = Uint8Array.from(atob(encoded), (char) => char.charCodeAt(0));
  } catch {
    throw new PictureError('The link is damaged: its picture cannot be read.');
  }
  const type = READ.find((_, i) => bytes[0] === [0x89, 0xff, 0x52, 0x47, 0x42][i]) ?? ''; // by its first byte
  return readPicture(new File([bytes], name || 'picture', { type }));
}

async function decoded(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new PictureError('This file is no picture that can be read here.');
  }
}

async function smaller(bitmap, longest) {
  const scale = Math.min(1, longest / Math.max(bitmap.width, bitmap.height));
  const canvas = new OffscreenCanvas(Math.ceil(bitmap.width * scale), Math.ceil(bitmap.height * scale));
  const pen = canvas.getContext('2d');
  pen.imageSmoothingQuality = 'high';
  pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: 'image/jpeg', quality: 0.9 });
}

export async function base64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let binary = '';
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}
