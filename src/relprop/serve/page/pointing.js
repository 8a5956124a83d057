// One unit of many is looked at: by pointer, by touch, or with the arrow keys.

const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

/** The options of a list box: one stop of the tab key, arrows between them. `pointed` hears the number, or null. */
export function listBox(box, options, pointed) {
  let current = 0;
  const focused = () => (box.contains(document.activeElement) ? current : null);
  options.forEach((option, i) => {
    option.setAttribute('role', 'option');
    option.setAttribute('tabindex', i ? -1 : 0);
    option.addEventListener('pointerenter', () => pointed(i));
    option.addEventListener('click', () => option.focus());
    option.addEventListener('focus', () => {
      options[current].setAttribute('tabindex', -1);
      option.setAttribute('tabindex', 0);
      current = i;
      pointed(i);
    });
  });
  box.setAttribute('role', 'listbox');
  box.addEventListener('pointerleave', () => pointed(focused()));
  box.addEventListener('focusout', () => pointed(null));
  box.addEventListener('keydown', (event) => {
    const next = stepped(event.key, current, options.length);
    if (next === null) return;
    event.preventDefault();
    options[next].focus();
  });
}

function stepped(key, current, count) {
  if (key === 'Home') return 0;
  if (key === 'End') return count - 1;
  return key in STEPS ? Math.min(count - 1, Math.max(0, current + STEPS[key])) : null;
}

/** Shows which option is looked at. */
export function select(options, place) {
  options.forEach((option, i) => option.setAttribute('aria-selected', i === place));
}

/** A pointer over a picture, or the arrow keys in it: `pointed` hears {x, y} from 0 to 1, or null. */
export function plane(element, steps, pointed) {
  let at = null;
  const heard = (place, spoken = false) => {
    at = place;
    pointed(place, spoken);
  };
  const under = (event) => {
    const box = element.getBoundingClientRect();
    heard({ x: inside((event.clientX - box.left) / box.width), y: inside((event.clientY - box.top) / box.height) });
  };
  for (const kind of ['pointermove', 'pointerdown']) element.addEventListener(kind, under); // a touch only goes down
  element.addEventListener('pointerleave', () => heard(null));
  element.addEventListener('blur', () => heard(null));
  element.addEventListener('keydown', (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    const across = event.key === 'ArrowLeft' || event.key === 'ArrowRight';
    const { x, y } = at ?? { x: 0.5, y: 0.5 };
    const step = at ? STEPS[event.key] : 0; // the first key shows the middle
    heard({ x: inside(x + (across ? step / steps.x : 0)), y: inside(y + (across ? 0 : step / steps.y)) }, true);
  });
}

const inside = (share) => Math.min(0.9999, Math.max(0, share));
