// Asks the service. A token is kept in memory only; what went wrong is told in a sentence.

import { byId } from './dom.js';

let token = '';

export class ServiceError extends Error {
  constructor(message, wait = 0) {
    super(message);
    this.wait = wait; // seconds until it is worth another try
  }
}

export const get = async (path, signal) => (await asked(path, { signal })).json();

export const post = async (path, body, signal) => (await sent(path, body, signal)).json();

/** What is drawn of explanations, as a file. */
export const file = async (path, body, signal) => (await sent(path, body, signal)).blob();

export const addressOf = (model, verb = '') => `/v1/models/${encodeURIComponent(model)}${verb}`;

const sent = (path, body, signal) =>
  asked(path, { method: 'POST', body: JSON.stringify(body), signal, headers: { 'Content-Type': 'application/json' } });

async function asked(path, options) {
  const used = token;
  const headers = { ...options.headers, ...(used && { Authorization: `Bearer ${latin(used)}` }) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServiceError('The service cannot be reached. Is it still running?');
  }
  if (answer.status === 401) {
    if (used === token) await askToken(Boolean(used)); // else another request has asked meanwhile
    return asked(path, options);
  }
  if (!answer.ok) throw await told(answer);
  return answer;
}

/** A token's bytes, as headers carry them. */
const latin = (text) => String.fromCharCode(...new TextEncoder().encode(text));

async function told(answer) {
  const body = await answer.json().catch(() => ({}));
  const reason = typeof body.error === 'string' ? body.error : `the service answered ${answer.status}`;
  return new ServiceError(sentence(reason), Number(answer.headers.get('Retry-After')) || 0);
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? '' : '.'}`;

let asking = null; // all that wait for a token wait for the same one

function askToken(wrong) {
  asking ??= shown(byId('token'), wrong).finally(() => { asking = null; });
  return asking;
}

function shown(dialog, wrong) {
  const form = dialog.querySelector('form');
  const field = form.elements.namedItem('token');
  byId('token-wrong').textContent = wrong ? 'This token is not the right one.' : '';
  field.value = '';
  dialog.showModal();
  return new Promise((resolve, reject) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      token = field.value.trim();
      dialog.close();
      resolve();
    };
    byId('token-cancel').onclick = () => dialog.close();
    const refused = new ServiceError('The service wants its token, which whoever started it knows.');
    dialog.onclose = () => reject(refused);
  });
}
