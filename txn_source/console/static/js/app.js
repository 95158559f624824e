/**
 * The router: one page for each address behind `#`, loaded when it is first opened and asked to update itself each 2 s.
 *
 * A page's module has `page(params) -> {title, element, update(), close()}`. `params` has the parts of the address by
 * name (`topic`, `partition`, `subscription`), `query` (URLSearchParams), `about` (GET /api/about), `setQuery(changes)`,
 * which notes what the reader chose in the address without opening the page anew (null removes), `refresh()`, which
 * updates now, and `noteFigures(figures)`, which takes those of GET /api/overview that a page has asked for anyway.
 * `update` is async; what it throws the frame shows. `title` may change with an update.
 */

import { ApiError, events, get, isAway, token } from './api.js';
import { h, patch, say } from './dom.js';
import { drawAway, drawHead, drawOutdated, listenToKeys, signIn } from './frame.js';
import { empty, fault } from './parts.js';
import { poll } from './poll.js';

const ROUTES = [
  [/^$/, [], () => import('./pages/overview.js')],
  [/^blockers$/, [], () => import('./pages/blockers.js')],
  [/^topics$/, [], () => import('./pages/topics.js')],
  [/^topics\/([^/]+)$/, ['topic'], () => import('./pages/topic.js')],
  [/^topics\/([^/]+)\/(\d+)$/, ['topic', 'partition'], () => import('./pages/partition.js')],
  [/^subscriptions$/, [], () => import('./pages/subscriptions.js')],
  [/^subscriptions\/([^/]+)\/([^/]+)$/, ['topic', 'subscription'], () => import('./pages/subscription.js')],
  [/^messages$/, [], () => import('./pages/messages.js')],
  [/^policies$/, [], () => import('./pages/policies.js')],
];
const FIGURES_EVERY_MS = 10_000;

const main = document.getElementById('main');
const scrolls = new Map();
let about = null;
let current = null;
let opened = 0;
let byLink = false;
let oldestMs = null;
let figuresAtMs = 0;
let shownHash = null;

function parse(hash) {
  const [path, query = ''] = hash.replace(/^#?\/?/, '').split(/\?(.*)/s);
  return { path, query: new URLSearchParams(query) };
}

function find(path) {
  for (const [pattern, names, load] of ROUTES) {
    const found = pattern.exec(path);
    if (!found) continue;
    try {
      return { load, named: Object.fromEntries(names.map((name, at) => [name, decodeURIComponent(found[at + 1])])) };
    } catch {
      return null;
    }
  }
  return null;
}

function leave() {
  // A question is about the page that asks it.
  document.querySelectorAll('dialog').forEach((dialog) => dialog.close());
  current?.polling?.stop();
  current?.page?.close?.();
  current = null;
}

async function open() {
  const mine = ++opened;
  if (shownHash !== null) scrolls.set(shownHash, window.scrollY);
  const first = shownHash === null;
  const wasLink = byLink;
  byLink = false;
  shownHash = location.hash;
  leave();
  const { path, query } = parse(location.hash);
  const route = find(path);
  try {
    about ??= await get('about');
  } catch (error) {
    if (mine !== opened || error.status === 401) return;
    // Nothing can be shown yet: ask again until there is an answer.
    const polling = poll(async () => {
      about = await get('about');
      polling.stop();
      open();
    }, (failed, retryAt) => drawAway(failed, retryAt, () => polling.now()));
    current = { polling };
    return;
  }
  const module = route ? await route.load().catch((error) => ({ page: () => broken(error) })) : { page: unknown };
  if (mine !== opened) return;
  const page = module.page({ ...route?.named, query, about, setQuery, refresh: () => current?.polling?.now(), noteFigures });
  const wrong = h('div.page-fault', { role: 'alert' });
  current = { page, path };
  // A page's own element goes in as it is: it must not be made like the one before.
  main.replaceChildren(wrong, page.element);
  window.scrollTo(0, 0);
  head();
  titled(page);
  let settled = false;
  current.polling = poll(async () => {
    await page.update();
    await figures();
  }, (error, retryAt) => {
    if (mine !== opened) return;
    ended(error, retryAt, wrong);
    titled(page);
    head();
    if (settled) return;
    settled = true;
    if (!wasLink && scrolls.has(shownHash)) requestAnimationFrame(() => window.scrollTo(0, scrolls.get(shownHash)));
  });
  if (!first) {
    (main.querySelector('h1') ?? main).focus({ preventScroll: true });
    say(page.title);
  }
}

/** After an update: what went wrong is told at the page, or, if nothing works, above all pages. */
function ended(error, retryAt, wrong) {
  const away = isAway(error);
  drawAway(away ? error : null, retryAt, () => current?.polling?.now());
  if (error && !(error instanceof ApiError)) console.error(error);
  if (!away) patch(wrong, error && error.status !== 401 ? fault(error instanceof ApiError ? error : misunderstood(error)) : null);
}

/** The figures that the head shows, now and then, if the page doesn't bring them. */
async function figures() {
  if (Date.now() - figuresAtMs < FIGURES_EVERY_MS) return;
  noteFigures(await get('overview').catch((error) => {
    if (isAway(error)) throw error;
    return {}; // who may not see them sees the page nevertheless
  }));
}

const misunderstood = ({ message }) => ({ fact: 'This page can’t show what the service answered.', remedy: 'Reload it.', code: message });

function noteFigures({ oldest_open_ms: oldest = null, now_ms: now }) {
  oldestMs = oldest === null ? null : now - oldest;
  figuresAtMs = Date.now();
}

function head() {
  drawHead({ path: parse(location.hash).path, about, oldestMs, signOut });
}

function titled({ title }) {
  document.title = `${title} · txnlog`;
}

function setQuery(changes) {
  const { path, query } = parse(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === '' || value === false) query.delete(name);
    else query.set(name, value === true ? '1' : value);
  }
  const search = query.toString();
  history.replaceState(history.state, '', `#/${path}${search ? `?${search}` : ''}`);
  shownHash = location.hash;
}

function signOut() {
  token.forget();
  askForToken(null);
}

function askForToken(error) {
  opened += 1;
  leave();
  about = null;
  oldestMs = null;
  drawAway(null);
  drawHead({ path: parse(location.hash).path, about });
  signIn(error, (known) => {
    about = known;
    open();
  });
}

const unknown = () => ({ title: 'No such page', element: h('div', {}, h('h1', { tabindex: '-1' }, 'No such page'), empty('There is no such page.', h('a', { href: '#/' }, 'Overview'))), async update() {} });
const broken = (error) => ({
  title: 'Not loaded',
  element: h('div', {}, fault({ fact: "This page couldn't be loaded.", remedy: 'Reload the console.' })),
  async update() {
    if (!(error instanceof TypeError)) throw error;
    await get('about'); // the service may be away, or serve another release
  },
});

events.addEventListener('signedout', ({ detail: { error, hadToken } }) => askForToken(hadToken ? error : null));
events.addEventListener('edition', ({ detail }) => drawOutdated(detail));
window.addEventListener('hashchange', open);
document.addEventListener('click', (event) => {
  if (event.target.closest?.('a[href^="#/"]')) byLink = true;
  if (event.target.closest?.('a.skip')) {
    event.preventDefault();
    main.focus();
  }
});
history.scrollRestoration = 'manual';
listenToKeys();
drawHead({ path: parse(location.hash).path, about });
open();
