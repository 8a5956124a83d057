// What went wrong, and a button to try again: at once, or when the service has said.

import { make } from './dom.js';

export function problem(error, again) {
  const button = make('button', { type: 'button', click: again }, 'Try again');
  const box = make('div', { class: 'problem' }, make('p', {}, error.message), ...(again ? [button] : []));
  if (again && error.wait) countDown(button, error.wait);
  return box;
}

function countDown(button, seconds) {
  button.disabled = seconds > 0;
  button.textContent = seconds > 0 ? `Try again in ${seconds} s` : 'Try again';
  if (seconds > 0) setTimeout(() => countDown(button, seconds - 1), 1000);
}
