/**
 * A table of any number of rows: a real one, of which only the rows near the screen exist, loaded in pages.
 *
 * It scrolls with the page. A refresh changes values where they stand; while the pointer or the focus is on its rows it
 * keeps their order, too, and says so.
 */

import { h, patch, say } from './dom.js';
import { number } from './format.js';
import { empty as nothing } from './parts.js';

const BLOCK = 50;
const LIMIT = 500;
const AHEAD = 12;
const SEARCH_AFTER_MS = 200;

const classes = ({ align, wide, roomy }) => [align, wide && 'wide', roomy && 'roomy'].filter(Boolean).join(' ') || null;

/**
 * Args (one object):
 *   caption: what the table lists, for screen readers; `noun`: [singular, plural] for the count.
 *   columns: [{name, title, render(row, answer), sort (it can be sorted by it), align: 'end', width: '8rem', wide: true
 *     (left out on a phone), roomy: true (left out below 1,280 px), hint}]. The first column heads its row.
 *   load: async ({offset, limit, sort, descending, search}) -> {total, rows}.
 *   key: row -> who it is. `rowClass`: row -> classes, or null.
 *   sort, descending, search: with what it begins; `changed({sort, descending, search})` hears of others.
 *   searchable: what the search field's placeholder says, or null. `tools`: elements beside it.
 *   tall: rows have room for a strip. `empty`: [title, ...more] where there is nothing at all.
 * Returns {element, refresh(), reload(), close(), answer}.
 */
export function virtualTable(options) {
  const { caption, columns, load, key, rowClass = () => null, changed = () => {}, tools = [], tall = false } = options;
  const [one, many] = options.noun ?? ['row', 'rows'];
  let { sort = null, descending = false, search = '' } = options;
  let rows = new Map();
  let total = null;
  let answer = null;
  let asked = 0;
  let frame = 0;
  let typing = 0;
  let pointed = false;
  let loading = null;

  const counted = h('span.quiet.counted', { 'aria-live': 'off' });
  const held = h('span.quiet.held');
  const field = options.searchable
    ? h('input', { type: 'search', 'data-search': true, 'aria-label': options.searchable, placeholder: options.searchable, value: search, maxlength: 200, spellcheck: 'false', autocomplete: 'off', oninput: typed })
    : null;
  const head = h('tr', { role: 'row', 'aria-rowindex': 1 });
  const gapAbove = h('tbody.gap', { 'aria-hidden': 'true' });
  const gapBelow = h('tbody.gap', { 'aria-hidden': 'true' });
  // One cell: more would make columns of those that a phone leaves out.
  const gap = (height) => h('tr', {}, h('td', { style: { height: `${height}px` } }));
  const body = h('tbody', { role: 'rowgroup', onpointerenter: () => (pointed = true), onpointerleave: () => (pointed = false) });
  const table = h('table', { role: 'table', class: tall ? 'virtual tall' : 'virtual' }, h('caption.unseen', {}, caption),
    h('colgroup', {}, columns.map(({ width, wide, roomy }) => h('col', { class: classes({ wide, roomy }), style: width ? { '--width': width } : {} }))),
    h('thead', { role: 'rowgroup' }, head), gapAbove, body,
    gapBelow);
  const none = h('div');
  const element = h('div.virtual-table', { own: true }, h('div.tools', {}, field, tools, held, counted), table, none);

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(() => {
      search = field.value.trim();
      changed({ sort, descending, search });
      reload().then(() => say(`${number(total)} ${total === 1 ? one : many}`), () => {});
    }, SEARCH_AFTER_MS);
  }

  function sortBy(column) {
    // Figures are looked at from the largest one.
    descending = sort === column.name ? !descending : column.align === 'end';
    sort = column.name;
    changed({ sort, descending, search });
    drawHead();
    reload().catch(() => {});
  }

  function drawHead() {
    patch(head, columns.map((column) => {
      const sorted = column.name === sort ? (descending ? 'descending' : 'ascending') : null;
      const title = h('span', { title: column.hint }, column.title);
      return h('th', { scope: 'col', role: 'columnheader', 'aria-sort': column.sort ? (sorted ?? 'none') : null, class: classes(column) },
        column.sort ? h('button', { type: 'button', onclick: () => sortBy(column) }, title) : title);
    }));
  }

  /** The rows near the screen: [first, end). */
  function near() {
    const height = rowHeight();
    const top = gapAbove.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / height) - AHEAD);
    const end = Math.ceil((window.innerHeight - top) / height) + AHEAD;
    return [Math.min(first, total ?? 0), Math.max(0, total === null ? Math.max(end, BLOCK) : Math.min(end, total))];
  }

  let measured = 0;
  function rowHeight() {
    const row = body.querySelector('tr');
    if (row?.isConnected) measured = row.getBoundingClientRect().height || measured;
    return measured || 34;
  }

  function draw() {
    frame = 0;
    if (!element.isConnected) return;
    const [first, end] = near();
    const shown = [];
    for (let index = first; index < end && total !== null; index += 1) {
      const row = rows.get(index);
      shown.push(h('tr', { role: 'row', key: row ? `k${key(row)}` : `i${index}`, class: row ? rowClass(row) : 'awaited', 'aria-rowindex': index + 2 },
        columns.map((column, at) => h(at ? 'td' : 'th', { scope: at ? null : 'row', role: at ? 'cell' : 'rowheader', class: classes(column) },
          row ? column.render(row, answer) : null))));
    }
    const before = fillGaps(first, end);
    patch(body, shown);
    // The first rows tell how high one is.
    if (rowHeight() !== before) fillGaps(first, end);
    const rowCount = String(total === null ? -1 : total + 1);
    if (table.getAttribute('aria-rowcount') !== rowCount) table.setAttribute('aria-rowcount', rowCount);
    table.toggleAttribute('hidden', total === 0);
    patch(counted, total === null ? '' : `${number(total)} ${total === 1 ? one : many}`);
    patch(none, total === 0 ? (search ? nothing(`No ${one} matches “${search}”.`) : nothing(...(options.empty ?? [`There are no ${many}.`]))) : null);
    if (!loading && total !== null && missing(first, end)) fetchRows(false).catch(() => {});
  }

  /** Make room for the rows that don't exist. Returns the height of a row that was taken for it. */
  function fillGaps(first, end) {
    const height = rowHeight();
    patch(gapAbove, gap(first * height));
    patch(gapBelow, gap(Math.max(0, (total ?? 0) - end) * height));
    return height;
  }

  function missing(first, end) {
    for (let index = first; index < end; index += 1) if (!rows.has(index)) return true;
    return false;
  }

  function drawSoon() {
    frame ||= requestAnimationFrame(draw);
  }

  /** Load what is near the screen. `all`: also what is there already. */
  async function fetchRows(all) {
    const mine = ++asked;
    const [first, end] = near();
    const offset = Math.floor(first / BLOCK) * BLOCK;
    const limit = Math.min(LIMIT, Math.max(BLOCK, Math.ceil((end - offset) / BLOCK) * BLOCK));
    loading = mine;
    let fresh;
    try {
      fresh = await load({ offset, limit, sort, descending: descending ? 1 : null, search });
    } finally {
      if (loading === mine) loading = null;
    }
    if (mine !== asked) return;
    answer = fresh;
    const still = all && (pointed || body.contains(document.activeElement));
    const moved = still ? keepOrder(offset, fresh) : takeOrder(offset, fresh, all);
    patch(held, moved ? 'Order kept while the pointer or the focus is on it' : null);
    draw();
  }

  function takeOrder(offset, fresh, all) {
    if (all) rows = new Map();
    total = fresh.total;
    fresh.rows.forEach((row, at) => rows.set(offset + at, row));
    return false;
  }

  /** New values at their old places. Returns whether the order is another one by now. */
  function keepOrder(offset, fresh) {
    const byKey = new Map(fresh.rows.map((row) => [key(row), row]));
    let moved = total !== fresh.total;
    total = Math.max(total, fresh.total);
    fresh.rows.forEach((row, at) => {
      const old = rows.get(offset + at);
      if (!old) rows.set(offset + at, row);
      else if (key(old) !== key(row)) moved = true;
    });
    for (const [index, old] of rows) if (byKey.has(key(old))) rows.set(index, byKey.get(key(old)));
    return moved;
  }

  /** Other rows: from the first one on. */
  function reload() {
    pointed = false;
    rows = new Map();
    if (element.getBoundingClientRect().top < 0) element.scrollIntoView({ block: 'start' });
    return fetchRows(true);
  }

  drawHead();
  window.addEventListener('scroll', drawSoon, { passive: true });
  window.addEventListener('resize', drawSoon);
  return {
    element,
    refresh: () => fetchRows(true),
    reload,
    get answer() {
      return answer;
    },
    close() {
      asked += 1;
      clearTimeout(typing);
      window.removeEventListener('scroll', drawSoon);
      window.removeEventListener('resize', drawSoon);
    },
  };
}
