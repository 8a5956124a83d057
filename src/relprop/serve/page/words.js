// Numbers and strangers' texts in words, as the library shows them (render/layout.py, render/visible.py).

const SPELT = { '\n': '↵', '\t': '⇥' };
const UNSEEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu; // joiners move nothing

/** The text with every control, bidi and other unseen character spelt out; nothing and blanks get a sign too. */
export function visible(text) {
  if (!text.replaceAll(' ', '')) return '␣'.repeat(text.length) || '∅';
  return text.replace(UNSEEN, (char) => SPELT[char] ?? `‹U+${hex(char)}›`);
}

const hex = (char) => char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');

/** A signed number of three decimals, in powers of ten where those would show nothing or a wall of digits. */
export function number(value) {
  const plain = value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6);
  const told = plain ? Math.abs(value).toFixed(3) : Math.abs(value).toExponential(2);
  return (value < 0 ? '−' : '+') + told;
}

export const unsigned = (value) => number(value).replace('+', '');

export const percent = (share) => `${(100 * share).toFixed(share > 0.0005 && share < 0.9995 ? 1 : 0)} %`;

/** A score, and in words what its colour says; scores of one sign only say how much. */
export function titled(score, signed, shown = number(score)) {
  if (!signed) return unsigned(score);
  return `${shown.replace('-', '−')} ${score > 0 ? 'supports' : score < 0 ? 'opposes' : 'neutral'}`;
}

export const plural = (count, one) => `${count} ${one}${count === 1 ? '' : 's'}`;
