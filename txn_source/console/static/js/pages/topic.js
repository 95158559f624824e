/** One topic: its figures, and its partitions as strips, or its messages, subscriptions, policies. */

import { get } from '../api.js';
import { h, patch } from '../dom.js';
import { age, byteRate, bytes, count, href, number, rate } from '../format.js';
import { facts, fault, heading, partitionLink, tabs } from '../parts.js';
import { hasOlder, heldPart, legend, strip } from '../strip.js';
import { virtualTable } from '../virtual_table.js';
import { blockerHref } from '../blocker.js';
import { figure } from './topics.js';

const TABS = [
  ['partitions', 'Partitions', async () => ({ panel: partitionsOf })],
  ['messages', 'Messages', () => import('./messages.js')],
  ['subscriptions', 'Subscriptions', () => import('./subscriptions.js')],
  ['policies', 'Policies', () => import('./policies.js')],
];

export function page(params) {
  const { topic, query } = params;
  const tab = TABS.find(([key]) => key === query.get('tab')) ?? TABS[0];
  const figures = h('div');
  const slot = h('div');
  const parts = h('div', { hidden: true });
  let inner = null;
  let closed = false;

  const element = h('div', {}, heading(topic, { trail: [['Topics', '#/topics']] }), figures, parts);
  parts.append(tabs('Parts of the topic', TABS.map(([key, text]) => [key, text, href(['topics', topic], { tab: key === 'partitions' ? null : key })]), tab[0]), slot);

  async function load() {
    let made;
    try {
      made = (await tab[2]()).panel(params);
    } catch (error) {
      console.error(error);
      made = { element: fault({ fact: "This part couldn't be loaded.", remedy: 'Reload the console.' }), async update() {} };
    }
    if (closed) {
      made.close?.();
      return null;
    }
    slot.replaceChildren(made.element);
    return made;
  }

  return {
    title: topic,
    element,
    async update() {
      const row = await get('topic', { name: topic });
      patch(figures, described(row));
      parts.hidden = false;
      inner ??= await load();
      await inner?.update();
    },
    close() {
      closed = true;
      inner?.close?.();
    },
  };
}

function described(row) {
  const { held_back_messages: held, now_ms: now = Date.now() } = row;
  return [
    facts([
      ['Held back', held ? h('a.held-back', { href: href(['blockers'], { search: row.name }) }, count(held, 'message'), row.held_back_since_ms ? [' for ', age(row.held_back_since_ms, now)] : null) : 'nothing'],
      ['Messages', number(row.messages)],
      ['Size', bytes(row.bytes)],
      ['Written', row.rate_messages === null ? '–' : `${rate(row.rate_messages)}, ${byteRate(row.rate_bytes)}`],
      ['Last message', row.last_publish_ms ? age(row.last_publish_ms, now, { suffix: ' ago' }) : '–'],
      ['Partitions', number(row.partitions)],
      ['Open transactions', number(row.open_transactions)],
      ['Subscriptions', number(row.subscriptions)],
      ['Backlog', number(row.backlog)],
      row.short_messages ? ['With too few copies', number(row.short_messages)] : null,
    ]),
    row.schema?.length ? h('details.schema', {}, h('summary', {}, `Schema: ${count(row.schema.length, 'column')}`),
      h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Column'), h('th', { scope: 'col' }, 'Type'))),
        h('tbody', {}, row.schema.map(({ name, type }) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, h('code', {}, type))))))) : null,
  ];
}

/** The partitions of a topic as strips. */
function partitionsOf({ topic, query, setQuery }) {
  const meaning = h('div', {}, legend());
  let zoomed = query.get('scale') === 'held';
  const choice = (value, text) => h('label', {}, h('input', { type: 'radio', name: 'scale', checked: zoomed === value, onchange() {
    zoomed = value;
    setQuery({ scale: value ? 'held' : null });
    table.refresh();
  } }), text);
  const table = virtualTable({
    caption: `Partitions of ${topic}`,
    noun: ['partition', 'partitions'],
    tall: true,
    tools: [h('fieldset.scale', {}, h('legend.unseen', {}, 'What a strip shows'), choice(false, 'Whole partition'), choice(true, 'What is held back'))],
    sort: query.get('sort') ?? 'partition',
    descending: query.has('descending'),
    changed: ({ sort, descending }) => setQuery({ sort, descending }),
    key: (row) => row.partition,
    load: (asked) => get('partitions', { topic, ...asked }),
    columns: [
      { name: 'partition', title: h('abbr', { title: 'Partition' }, 'No.'), sort: true, width: '4.5rem', render: (row) => partitionLink(topic, row.partition, String(row.partition)) },
      { name: 'strip', title: 'Oldest to newest message', render: (row) => drawn(row, zoomed) },
      { name: 'messages', title: 'Messages', sort: true, align: 'end', width: '7.5rem', wide: true, render: (row) => figure(row.messages) },
      { name: 'held_back_messages', title: 'Held back', sort: true, align: 'end', width: '7.5rem', render: (row) => h('span', { class: row.held_back_messages ? 'held-back' : null }, figure(row.held_back_messages)) },
      { name: 'since_ms', title: 'By, for how long', sort: true, width: '11rem', wide: true, render: (row, { now_ms: now }) => blocker(row, now) },
    ],
  });
  return {
    element: h('div', {}, meaning, table.element),
    async update() {
      await table.refresh();
      patch(meaning, legend({ older: table.answer.rows.some((row) => hasOlder(row.strip)) }));
    },
    close: table.close,
  };
}

function drawn(row, zoomed) {
  const [from, to] = (zoomed && heldPart(row.strip)) || [];
  const plain = zoomed && from === undefined;
  return plain ? h('span.quiet', {}, 'nothing held back') : strip(row.strip, { label: `Partition ${row.partition}`, from, to });
}

/** Who holds a partition back, and since when. */
export function blocker(row, now) {
  if (!row.blocker) return row.since_ms ? age(row.since_ms, now) : null;
  const { txn, producer, since_ms: since } = row.blocker;
  return [h('a.line', { href: blockerHref(txn), title: `Transaction ${txn} of ${producer ?? 'an unknown producer'}` }, producer ?? `transaction ${txn}`), h('span.line.quiet.small', {}, age(since, now))];
}
