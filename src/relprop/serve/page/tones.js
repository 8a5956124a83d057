// Sounds that are made here, as files: tones that rise or stay, and silence.

const RATE = 16_000; // samples per second
const LOUD = 0.4;
const EDGE = 0.01; // seconds in which a tone swells and fades, so that it does not click

/** A wav file of parts one after the other: `from` and `to` are the tone's hertz; without them it is silent. */
export function toneFile(name, parts) {
  const samples = parts.flatMap(part);
  return new File([header(samples.length), Int16Array.from(samples, (one) => Math.round(32_767 * one))],
    `${name}.wav`, { type: 'audio/wav' });
}

function part({ seconds, from = 0, to = 0 }) {
  const count = Math.round(seconds * RATE);
  let phase = 0;
  return Array.from({ length: count }, (_, i) => {
    phase += 2 * Math.PI * (from + (to - from) * i / count) / RATE;
    const swell = Math.min(1, i / (EDGE * RATE), (count - i) / (EDGE * RATE));
    return from ? LOUD * swell * Math.sin(phase) : 0;
  });
}

/** Of one channel of 16 bits. */
function header(count) {
  const view = new DataView(new ArrayBuffer(44));
  const bytes = (at, text) => [...text].forEach((char, i) => view.setUint8(at + i, char.charCodeAt(0)));
  bytes(0, 'RIFF');
  view.setUint32(4, 36 + 2 * count, true);
  bytes(8, 'WAVEfmt ');
  view.setUint32(16, 16, true); // bytes of what follows
  view.setUint16(20, 1, true); // plain samples
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  bytes(36, 'data');
  view.setUint32(40, 2 * count, true);
  return view;
}
