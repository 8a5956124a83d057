// Something to begin with: texts, molecules, pictures and sounds that a click puts into the form.

import { byId, make } from './dom.js';
import { toneFile } from './tones.js';
import { visible } from './words.js';

const PAGE = `word,left,top,right,bottom
Invoice,80,60,330,110
Total,80,500,200,540
42.50,700,500,820,540`;
// By what a model reads: [text, second text], and a short name where the text is not its own.
const TEXTS = {
  texts: [
    { text: 'It is not a great film, but a gorgeous and witty one.' },
    { text: 'The acting is terrible, but I loved every minute.' },
    { text: 'A long, dull film with one good joke.' }],
  language: [
    { text: 'Once upon a time there was a little' },
    { text: 'Tom was hungry. He opened the fridge and took out a' },
    { text: 'Anna lost her toy. She was very' }],
  questions: [
    { text: 'Who wrote the paper?',
      pair: 'The paper on conservative propagation was written by Ameen Ali and others in 2022.' },
    { text: 'Where does the cat sleep?',
      pair: 'The dog sleeps in the kitchen. The cat sleeps on the sofa, beside the window.' }],
  documents: [{ name: 'an invoice', text: PAGE }],
  document_questions: [{ name: 'an invoice', text: PAGE, pair: 'What is the total?' }],
  masks: [{ text: 'It is a [MASK] film.' }],
  two_texts: [
    { text: 'A man plays a guitar on stage.', pair: 'Someone performs music with a guitar.' },
    { text: 'A man plays a guitar on stage.', pair: 'A woman repairs a car.' }],
  next: [
    { text: 'He opened the fridge.', pair: 'There was no milk in it.' },
    { text: 'He opened the fridge.', pair: 'The moon is far away.' }],
  choices: [
    { text: 'The pan was very hot.', pair: 'He burnt his hand.\nHe froze to the bone.' }],
  pairs: [{ text: 'a photo of a cat' }, { text: 'a photo of a dog' }],
  graphs: [
    { name: 'aspirin', text: 'CC(=O)Oc1ccccc1C(=O)O' },
    { name: 'caffeine', text: 'Cn1cnc2c1c(=O)n(C)c(=O)n2C' },
    { name: 'verubecestat', text: 'CC1(CS(=O)(=O)N(C)C(=N1)N)c1cc(ccc1F)NC(=O)c1ccc(F)cn1' }],
};
const SOUNDS = [
  { name: 'a rising tone', parts: [{ seconds: 2, from: 220, to: 1760 }] },
  { name: 'three beeps', parts: [0, 1, 2].flatMap(() => [{ seconds: 0.25, from: 880, to: 880 }, { seconds: 0.35 }]) }];

const WRITTEN = ['text', 'question', 'smiles', 'both', 'document'];
const withMask = (one, mask) => ({ ...one, text: one.text.replace('[MASK]', () => mask) });

const textsOf = ({ kind, input, paired, mask = '[MASK]' }) =>
  (WRITTEN.includes(input) ? TEXTS[paired ? 'next' : kind] ?? [] : []).map((one) => withMask(one, mask));
let shown = '';  // the text that was put there last

/** What stands in the fields at first, unless something was typed. */
export function firstText(about) {
  const [text, pair] = [byId('text'), byId('pair')];
  const known = text.value === shown || Object.values(TEXTS).flat().some((one) => one.text === text.value);
  if (text.value && !known) return;
  const [first] = textsOf(about);
  [text.value, pair.value] = [first?.text ?? '', first?.pair ?? ''];
  shown = text.value;
}

/** The buttons of a model's samples; `use` hears a text, a file of a picture, or one of a sound. */
export function showSamples(about, use) {
  const pictures = about.samples ?? [];
  const buttons = [
    ...pictures.map((one) => pictureButton(one, use.picture)),
    ...textsOf(about).map((one, _, all) => textButton(one, use.text, all)),
    ...(about.input === 'sound' ? SOUNDS.map((one) => soundButton(one, use.sound)) : []),
  ];
  byId('samples').replaceChildren(...buttons);
  byId('samples-field').hidden = buttons.length < 1;
}

const button = (click, ...children) => make('button', { type: 'button', click }, ...children);

/** Samples that begin alike are told apart by their second text. */
function textButton(one, use, all) {
  const alike = all.filter(({ text }) => text === one.text).length > 1;
  return button(() => use(one.text, one.pair ?? ''), visible(one.name ?? (alike ? `${one.text} ${one.pair}` : one.text)));
}

const soundButton = ({ name, parts }, use) => button(() => use(toneFile(name, parts)), name);

function pictureButton({ name, url }, use) {
  const file = async () => {
    const blob = await (await fetch(url)).blob();
    use(new File([blob], url.split('/').pop(), { type: blob.type }));
  };
  const element = button(file, make('img', { src: url, alt: visible(name), loading: 'lazy' }));
  element.title = name;
  return element;
}
