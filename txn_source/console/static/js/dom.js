/**
 * Elements made of data, never of text that is parsed: whatever a name holds shows as text.
 *
 * `h` makes an element, `s` one of SVG, `patch` makes a parent's children like new ones: what is alike stays, with its
 * focus, selection and unfolded parts, so a poll that brings nothing new changes nothing.
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Return an element. `tag` may have classes: "div.card.wide".
 *
 * Props: `key` (who it is among its siblings, for `patch`), `own: true` (its children are its owner's, `patch` leaves
 * them alone), `on…` handlers, `style: {width: '10%'}`, `value` and `checked` as properties, all others as attributes;
 * null, undefined and false are left out, true is an empty attribute.
 */
export function h(tag, props, ...children) {
  return made((name) => document.createElement(name), tag, props, children);
}

/** Return an element of SVG, otherwise as `h`. */
export function s(tag, props, ...children) {
  return made((name) => document.createElementNS(SVG, name), tag, props, children);
}

function made(create, tag, props, children) {
  const [name, ...classes] = tag.split('.');
  const element = create(name);
  if (classes.length) element.setAttribute('class', classes.join(' '));
  for (const [prop, value] of Object.entries(props ?? {})) set(element, prop, value);
  element.append(...nodes(children));
  return element;
}

function set(element, prop, value) {
  if (prop === 'key' || prop === 'own') {
    element[prop] = value;
  } else if (prop.startsWith('on')) {
    element[prop] = value;
    (element.handlers ??= []).push(prop);
  } else if (value === null || value === undefined || value === false) {
    return;
  } else if (prop === 'class') {
    element.setAttribute('class', [element.getAttribute('class'), value].filter(Boolean).join(' '));
  } else if (prop === 'style') {
    for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
  } else if (prop === 'value' || prop === 'checked') {
    element[prop] = value;
    (element.wanted ??= {})[prop] = value;
  } else {
    element.setAttribute(prop, value === true ? '' : String(value));
  }
}

/** Return nodes of children: elements, texts, nested lists; null, undefined and booleans are left out. */
export function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && typeof child !== 'boolean')
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/** Make the children of `parent` like `children`; those with a `key` are found again wherever they are. */
export function patch(parent, ...children) {
  const keyed = new Map();
  for (const child of parent.childNodes) if (child.key !== undefined) keyed.set(child.key, child);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let at = parent.firstChild;
  for (const wanted of nodes(children)) {
    const have = wanted.key !== undefined ? keyed.get(wanted.key) : at;
    // Of two with one key the second is another one.
    keyed.delete(wanted.key);
    if (have && alike(have, wanted)) {
      if (have === at) at = at.nextSibling;
      else move(parent, have, at);
      become(have, wanted);
    } else {
      parent.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  // In other browsers a move takes it away.
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Browsers that can move a node leave the focus where it is. */
function move(parent, child, before) {
  if (parent.moveBefore) parent.moveBefore(child, before);
  else parent.insertBefore(child, before);
}

function alike(have, wanted) {
  return have.nodeName === wanted.nodeName && have.key === wanted.key;
}

function become(have, wanted) {
  if (have === wanted) return;
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.nodeValue !== wanted.nodeValue) have.nodeValue = wanted.nodeValue;
    return;
  }
  if (have.own) return;
  for (const { name, value } of [...wanted.attributes]) {
    if (have.getAttribute(name) === value) continue;
    // The security policy refuses styles as texts of attributes.
    if (name === 'style') have.style.cssText = wanted.style.cssText;
    else have.setAttribute(name, value);
  }
  for (const { name } of [...have.attributes]) {
    // Whether it is unfolded is the reader's.
    if (!wanted.hasAttribute(name) && !(name === 'open' && have.nodeName === 'DETAILS')) have.removeAttribute(name);
  }
  for (const name of have.handlers ?? []) have[name] = null;
  for (const name of wanted.handlers ?? []) have[name] = wanted[name];
  have.handlers = wanted.handlers;
  for (const [prop, value] of Object.entries(wanted.wanted ?? {})) {
    // What somebody chose or typed stays until another value is wanted.
    if (have !== document.activeElement && have.wanted?.[prop] !== value) have[prop] = value;
  }
  have.wanted = wanted.wanted;
  patch(have, ...wanted.childNodes);
}

/** Tell those who don't see the screen what changed. */
export function say(text) {
  const said = document.getElementById('said');
  if (said.textContent !== text) said.textContent = text;
}
