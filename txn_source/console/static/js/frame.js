/** What stands around each page: navigation, theme, keys, sign-in, and the notice that the service is away. */

import { get, token } from './api.js';
import { asking, show } from './dialog.js';
import { h, patch } from './dom.js';
import { duration, time } from './format.js';
import { fault } from './parts.js';

const PLACES = [
  ['o', 'Overview', '#/', /^$/],
  ['b', 'Who blocks whom', '#/blockers', /^blockers/],
  ['t', 'Topics', '#/topics', /^topics/],
  ['s', 'Subscriptions', '#/subscriptions', /^subscriptions/],
  ['m', 'Messages', '#/messages', /^messages/],
  ['p', 'Policies', '#/policies', /^policies/],
];
const THEMES = [['', 'System'], ['light', 'Light'], ['dark', 'Dark']];
const WORTH_TELLING_MS = 10_000;
let shownPath = null;

/** Draw the head: where one is, since when the oldest open transaction is there, who is asking. */
export function drawHead({ path, about, oldestMs = null, signOut }) {
  const late = oldestMs !== null && oldestMs >= WORTH_TELLING_MS ? duration(oldestMs).split(' ').slice(0, 2).join(' ') : null;
  patch(document.querySelector('header.top'),
    h('a.brand', { href: '#/', 'aria-label': 'txnlog console' }, 'txnlog'),
    h('nav.places', { 'aria-label': 'Pages' }, PLACES.map(([, name, to, mine]) =>
      h('a', { href: to, 'aria-current': mine.test(path) ? 'page' : null }, name,
        name === 'Who blocks whom' && late ? h('span.pill', { title: 'Age of the oldest open transaction' }, late) : null))),
    h('div.top-right', {},
      about?.caller ? h('span.quiet.caller', { title: 'Who the token names' }, about.caller) : null,
      about?.tokens ? h('button.plain', { type: 'button', onclick: signOut }, 'Sign out') : null,
      h('label.theme', {}, h('span.unseen', {}, 'Theme'),
        h('select', { value: document.documentElement.dataset.theme ?? '', onchange: chooseTheme },
          THEMES.map(([value, name]) => h('option', { value, selected: value === (document.documentElement.dataset.theme ?? '') }, name)))),
      h('button.plain', { type: 'button', title: 'Keys (?)', 'aria-label': 'Keys', onclick: showKeys }, '?')));
  const places = document.querySelector('.places');
  const here = places.querySelector('[aria-current]');
  // On a phone the places scroll.
  if (here && path !== shownPath) places.scrollLeft = here.offsetLeft - (places.clientWidth - here.offsetWidth) / 2;
  shownPath = path;
  patch(document.querySelector('footer.foot'), about
    ? [h('span', {}, `txnlog ${about.version}`), h('span', {}, 'log ', h('code', {}, about.log_id)), h('span', {}, about.database),
       about.address ? h('span', {}, about.address) : null, h('span', {}, `times of ${Intl.DateTimeFormat().resolvedOptions().timeZone}`)]
    : null);
}

function chooseTheme(event) {
  const theme = event.target.value;
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem('txnlog.theme', theme);
  } catch {
    // It holds for this page then.
  }
}

function showKeys() {
  const keys = [['?', 'These keys'], ['/', 'Search'], ...PLACES.map(([key, name]) => [`g ${key}`, name]),
    ['Esc', 'Leave a dialog or a search field']];
  const key = (text) => text.split(' ').map((one, at) => [at ? ' then ' : '', h('kbd', {}, one)]);
  show('Keys', h('table.keys', {}, h('tbody', {}, keys.map(([text, does]) => h('tr', {}, h('th', { scope: 'row' }, key(text)), h('td', {}, does))))));
}

/** Listen to the keys that hold everywhere. */
export function listenToKeys() {
  let going = 0;
  document.addEventListener('keydown', (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || asking()) return;
    if (target.closest?.('input, textarea, select, [contenteditable]')) {
      if (key === 'Escape' && target.matches('[data-search]')) target.blur();
      return;
    }
    const place = Date.now() - going < 1500 ? PLACES.find(([letter]) => letter === key) : null;
    going = 0;
    if (place) location.hash = place[2];
    else if (key === 'g') going = Date.now();
    else if (key === '?') showKeys();
    else if (key === '/') document.querySelector('[data-search]')?.focus();
    else return;
    event.preventDefault();
  });
}

/** Say that the service serves another release of this page by now. */
export function drawOutdated(outdated) {
  patch(document.querySelector('.banner .outdated'), outdated
    ? h('div.outdated-note', {}, h('strong', {}, 'The service was upgraded.'), h('span', {}, 'This tab shows the page of the release before.'),
        h('button', { type: 'button', onclick: () => location.reload() }, 'Reload'))
    : null);
}

let since = null;
let ticking = 0;

/** Show that the service gives no answer, and since when; `error` null: it does again. */
export function drawAway(error, retryAtMs, tryNow) {
  clearInterval(ticking);
  document.documentElement.classList.toggle('away', Boolean(error));
  const banner = document.querySelector('.banner .no-answer');
  if (!error) {
    since = null;
    patch(banner);
    return;
  }
  since ??= Date.now();
  const next = h('span.next', { 'aria-live': 'off' });
  const tick = () => (next.textContent = `next try in ${Math.max(0, Math.ceil((retryAtMs - Date.now()) / 1000))} s`);
  tick();
  ticking = setInterval(tick, 1000);
  patch(banner, h('div.away-note', {}, h('strong', {}, `No answer since ${time(since).slice(11)}`), h('span', {}, error.fact), next,
    h('button', { type: 'button', onclick: tryNow }, 'Try now')));
  // The clock's element of before was kept.
  banner.querySelector('.next').replaceWith(next);
}

/** Ask for a token; `signedIn(about)` is called with one that the service takes. */
export function signIn(error, signedIn) {
  const told = h('div', { role: 'alert' }, error ? fault(error) : null);
  const field = h('input', { id: 'token', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true });
  const submit = async (event) => {
    event.preventDefault();
    const text = field.value.trim().replace(/^bearer\s+/i, '');
    // A header takes no others.
    if (!/^[\x21-\x7e]+$/.test(text)) return patch(told, fault({ fact: 'A token is one word of printable characters.', remedy: 'Paste it as `txnlog tokens create` printed it.' }));
    token.set(text);
    try {
      signedIn(await get('about'));
    } catch (failure) {
      token.forget();
      patch(told, fault(failure));
      field.select();
    }
  };
  document.title = 'Sign in · txnlog';
  const form = h('form.sign-in', { onsubmit: submit }, h('h1', {}, 'Sign in'),
    h('p', {}, 'This service asks for a token. It is kept in this tab until it is closed.'),
    h('label', { for: 'token' }, 'Paste the token'), field, told, h('button.primary', { type: 'submit' }, 'Sign in'));
  // Not made like the one before: its field is this one.
  document.getElementById('main').replaceChildren(form);
  field.focus();
}
