// Shade -> colour, as the library draws it (render/palette.py): red supports, blue opposes, more is stronger.

const LIGHT = { ground: [255, 255, 255], supports: [178, 24, 43], opposes: [33, 102, 172] };
const DARK = { ground: [24, 26, 31], supports: [200, 44, 60], opposes: [47, 111, 196] };
// Scores of one sign have one hue, which stands for neither side.
const LIGHT_AMOUNT = { ground: LIGHT.ground, supports: [84, 39, 143], opposes: [84, 39, 143] };
const DARK_AMOUNT = { ground: DARK.ground, supports: [138, 94, 204], opposes: [138, 94, 204] };
const GLOW = [[188, 55, 84], [211, 71, 67], [230, 93, 47], [243, 120, 25],
  [251, 150, 6], [251, 182, 26], [245, 217, 73], [243, 246, 138]];
// What lies over a picture: a pale one under scores of both signs, a dim one under scores of one sign.
const SIGNED = { greys: [120, 255], supports: [LIGHT.supports], opposes: [LIGHT.opposes], ground: 255 };
const UNSIGNED = { greys: [0, 120], supports: GLOW, opposes: GLOW, ground: 0 };
const OPACITY = 0.85; // of the strongest scores: the picture still shows through
const KEPT = 0.995; // the share of a map's scores, zeros aside, that full colour does not clip
export const UNDERLINED = 0.2; // opposing units from this shade on are underlined: signs are not told by colour alone

const FAINT = 0.05; // of the value: a map that holds less, either way, is drawn as faint as it is

/** 1, or less where the scores are shares of a value of which they hold almost nothing. */
export function strength({ scores, value, account = [] }, signed) {
  if (!signed || !account.length || !value) return 1;
  const held = scores.flat().reduce((sum, score) => sum + Math.abs(score), 0);
  return Math.min(1, held / (FAINT * Math.abs(value)));
}

/** Scores over the strongest of them. */
export function shades(scores) {
  const strongest = Math.max(0, ...scores.map(Math.abs));
  return scores.map((score) => (strongest ? score / strongest : 0));
}

/** Gives an element the colours of a shade in [-1, 1]; the style sheet takes those of the reader's theme. */
export function tint(element, shade, signed = true) {
  const [light, dark] = signed ? [LIGHT, DARK] : [LIGHT_AMOUNT, DARK_AMOUNT];
  for (const [name, scale] of [['light', light], ['dark', dark]]) {
    const ground = colour(shade, scale);
    element.style.setProperty(`--${name}`, css(ground));
    element.style.setProperty(`--${name}-ink`, luminance(ground) > 0.179 ? '#000000' : '#ffffff');
  }
  element.classList.add('tinted');
  element.classList.toggle('minus', signed && shade <= -UNDERLINED);
}

function colour(shade, scale) {
  const pole = shade > 0 ? scale.supports : scale.opposes;
  return scale.ground.map((from, i) => Math.round(from + (pole[i] - from) * Math.abs(shade)));
}

const css = (rgb) => `rgb(${rgb.join(' ')})`;

/** Of WCAG 2: from 0.179 on black reads better than white. */
function luminance(rgb) {
  const [red, green, blue] = rgb.map((channel) => channel / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export const filmOf = (signed) => (signed ? SIGNED : UNSIGNED);

/** The score of full colour: the strongest, but for half a percent of a large map that would leave the rest pale. */
export function boundOf(scores) {
  const strengths = scores.filter((score) => score !== 0).map(Math.abs).sort((a, b) => a - b);
  return strengths.length ? strengths[Math.ceil(KEPT * (strengths.length - 1))] : 1;
}

/** A pixel between its grey and its colour, in a straight line with the shade. */
export function painted(grey, shade, film) {
  const strength = Math.min(1, Math.abs(shade));
  const [low, high] = film.greys;
  const ground = low + ((high - low) / 255) * grey;
  const over = ramp(strength, shade > 0 ? film.supports : film.opposes);
  return over.map((channel) => Math.round(ground + (channel - ground) * OPACITY * strength));
}

function ramp(strength, stops) {
  const place = strength * (stops.length - 1);
  const first = Math.min(Math.floor(place), Math.max(0, stops.length - 2));
  const next = stops[Math.min(first + 1, stops.length - 1)];
  return stops[first].map((from, i) => from + (next[i] - from) * (place - first));
}
