/** Messages as a table, each of which unfolds to all that is known of it. */

import { h, patch } from './dom.js';
import { bytes, href, number, time } from './format.js';
import { badge, facts, fault } from './parts.js';
import { hasFields, preview, whole } from './values.js';

const STATUSES = {
  committed: ['✓ committed', 'ok', 'Its transaction was committed.'],
  aborted: ['✕ aborted', 'bad', 'Its transaction was aborted: readers of read_committed never see it.'],
  open: ['… open', 'warn', 'Its transaction is open: readers of read_committed wait for it.'],
};

/** How a message's transaction ended, as text and shape; null for one without. */
export function statusBadge(status) {
  if (!status) return h('span.quiet', { title: 'It was sent outside of transactions.' }, 'plain');
  return badge(...(STATUSES[status] ?? [status]));
}

/** A message's id: its position and its place in the entry. */
export const idOf = (row) => `${row.position}:${row.index}`;

/**
 * Return {element, add(rows), draw(), length}; `draw` fits it to another width. `level`: at read_uncommitted each row
 * tells its status. `full(row)` asks for a message whose value was shortened.
 */
export function messageTable({ topic, level, full }) {
  const told = level === 'read_uncommitted';
  const rows = [];
  const unfolded = new Map();
  const titles = ['Message', 'Partition', 'Published', 'Key', 'Value', ...(told ? ['Status'] : [])];
  const body = h('tbody');
  const head = h('tr', {}, titles.map((title) => h('th', { scope: 'col', class: CLASSES[title] }, title)));
  const element = h('table.messages', { own: true, hidden: true }, h('caption.unseen', {}, `Messages of ${topic}`),
    h('thead', {}, head), body);

  function toggle(row) {
    const id = keyOf(row);
    if (unfolded.has(id)) unfolded.delete(id);
    else unfolded.set(id, { row, fault: null, asking: false });
    draw();
  }

  async function ask(id) {
    const state = unfolded.get(id);
    if (state.asking) return;
    Object.assign(state, { asking: true, fault: null });
    draw();
    try {
      state.row = await full(state.row);
    } catch (error) {
      state.fault = error;
    }
    state.asking = false;
    draw();
  }

  /** A row, made once: of thousands, those that stay as they are cost nothing. */
  function summaryOf(row) {
    return h('tr', { key: keyOf(row), class: row.status ?? null, onclick: (event) => event.target.closest('button, a, bdi') || toggle(row) },
      h('th', { scope: 'row' }, h('button.unfold', { type: 'button', 'aria-expanded': 'false', onclick: () => toggle(row) }, idOf(row))),
      h('td.end.wide', {}, number(row.partition)), h('td.when', {}, time(row.publish_ms)),
      h('td.key', {}, preview(row.key)), h('td.preview', {}, preview(row.value)), told ? h('td.status', {}, statusBadge(row.status)) : null);
  }

  function draw() {
    element.hidden = rows.length === 0;
    element.classList.toggle('keyless', rows.every(({ row }) => row.key === null));
    // Of columns that aren't shown none may be spanned, which would make others.
    const columns = [...head.children].filter((cell) => cell.offsetWidth).length || 1;
    patch(body, rows.map(({ row, summary }) => {
      const id = keyOf(row);
      const open = unfolded.get(id);
      summary.querySelector('.unfold').setAttribute('aria-expanded', String(Boolean(open)));
      return open ? [summary, h('tr.unfolded', { key: `${id} unfolded` }, h('td', { colspan: columns }, details(open, () => ask(id))))] : summary;
    }));
  }

  return {
    element,
    draw,
    add(more) {
      rows.push(...more.map((row) => ({ row, summary: summaryOf(row) })));
      draw();
    },
    get length() {
      return rows.length;
    },
  };
}

const CLASSES = { Partition: 'end wide', Published: 'when', Key: 'key', Value: 'preview', Status: 'status' };
const keyOf = (row) => `${row.partition} ${idOf(row)}`;

function details({ row, fault: failed, asking }, ask) {
  const properties = Object.entries(row.properties ?? {});
  const typed = hasFields(row.value);
  return h('div.details', {},
    facts([
      ['Message', h('code', {}, idOf(row))],
      ['Partition', number(row.partition)],
      ['Published', time(row.publish_ms)],
      ['Event time', row.event_ms === null || row.event_ms === undefined ? null : time(row.event_ms)],
      ['Producer', row.producer === null || row.producer === undefined ? null : preview(row.producer)],
      ['Transaction', row.txn ? [transaction(row), row.status ? [' ', statusBadge(row.status)] : null] : 'none'],
      ['Size', bytes(row.bytes)],
    ]),
    typed && row.key === null ? null : [h('h3', {}, 'Key'), whole(row.key)],
    h('h3', {}, 'Value'),
    typed
      ? fields(Object.entries(row.value))
      : whole(row.value),
    row.shortened ? h('p.shortened', {}, 'It is shortened here. ',
      h('button', { type: 'button', 'aria-disabled': asking ? 'true' : null, onclick: ask }, asking ? 'Loading …' : `Show the whole message (${bytes(row.bytes)})`)) : null,
    failed ? h('div', { role: 'alert' }, fault(failed)) : null,
    properties.length ? [h('h3', {}, 'Properties'), fields(properties)] : null);
}

const fields = (pairs) =>
  h('dl.fields', {}, pairs.map(([name, value]) => h('div', {}, h('dt', {}, preview(name)), h('dd', {}, whole(value)))));

/** An open one leads to those that it blocks. */
const transaction = ({ txn, status }) => (status === 'open' ? h('a', { href: href(['blockers'], { txn }) }, txn) : h('code', {}, txn));
