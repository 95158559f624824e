/** One partition: its strip at large with its bounds, who holds it back, its ledgers. */

import { get } from '../api.js';
import { blockerHref } from '../blocker.js';
import { h, patch } from '../dom.js';
import { age, bytes, count, href, number } from '../format.js';
import { badge, facts, heading, icon } from '../parts.js';
import { hasOlder, heldPart, legend, strip } from '../strip.js';
import { virtualTable } from '../virtual_table.js';

export function page({ topic, partition, query, setQuery }) {
  const name = `${topic} / ${partition}`;
  const around = h('div.acts');
  const shown = h('div.stack');
  const ledgers = virtualTable({
    caption: `Ledgers of ${topic}, partition ${partition}`,
    noun: ['ledger', 'ledgers'],
    sort: query.get('sort'),
    descending: query.has('descending'),
    changed: ({ sort, descending }) => setQuery({ sort, descending }),
    key: (row) => row.id,
    load: (asked) => get('ledgers', { topic, partition, ...asked }),
    columns: [
      { name: 'id', title: 'Ledger', width: '8rem', render: (row) => String(row.id) },
      { name: 'state', title: 'State', width: '7rem', render: (row) => badge(row.state, row.state === 'open' ? 'ok' : 'plain') },
      { name: 'copies', title: 'Copies', width: '9rem', render: (row) => [row.hot ? 'hot' : null, row.tiered ? 'tiered' : null].filter(Boolean).join(', ') || h('span.quiet', {}, 'none') },
      { name: 'messages', title: 'Messages', align: 'end', width: '9rem', render: (row) => number(row.to - row.from) },
      { name: 'entries', title: 'Entries', align: 'end', width: '7rem', roomy: true, render: (row) => number(row.entries) },
      { name: 'bytes', title: 'Size', align: 'end', width: '7rem', wide: true, render: (row) => bytes(row.bytes) },
      { name: 'tier_uri', title: 'Tiered object', wide: true, render: (row) => row.tier_uri ? h('code', { title: row.tier_uri }, row.tier_uri) : null },
    ],
  });
  const element = h('div', {}, heading(name, { trail: [['Topics', '#/topics'], [topic, href(['topics', topic])]], acts: around }),
    shown, h('section.section', { 'aria-labelledby': 'ledgers' }, h('h2', { id: 'ledgers' }, 'Ledgers'), ledgers.element));

  return {
    title: name,
    element,
    async update() {
      const [row, { partitions }] = await Promise.all([get('partition', { topic, partition }), get('topic', { name: topic })]);
      const at = Number(partition);
      const to = (other, text) => other >= 0 && other < partitions ? h('a.button', { href: href(['topics', topic, String(other)]) }, text) : null;
      patch(around, to(at - 1, '← Previous'), to(at + 1, 'Next →'));
      patch(shown, described(row, row.now_ms ?? Date.now()));
      await ledgers.refresh();
    },
    close: ledgers.close,
  };
}

function described(row, now) {
  const part = heldPart(row.strip);
  return [
    h('div.card', { key: 'strip' }, large(row.strip, 'Whole partition'), legend({ older: hasOlder(row.strip) }),
      facts([
        ['Log start', h('code', {}, row.log_start)],
        ['Last stable', h('code', {}, row.last_stable)],
        ['High watermark', h('code', {}, row.high_watermark)],
        ['Log end', h('code', {}, row.log_end)],
        ['Last readable at read_committed', row.max_read ? h('code', {}, row.max_read) : null],
        ['Messages', number(row.messages)],
        ['Size', bytes(row.bytes)],
      ])),
    part ? h('section.card.held-card', { key: 'held', 'aria-labelledby': 'held-title' }, h('h2', { id: 'held-title' }, icon('warning'), ' ', count(row.held_back_messages, 'message'), ' held back ', h('span.quiet', {}, bytes(row.held_back_bytes))),
      row.blocker ? h('p', {}, 'By ', h('a', { href: blockerHref(row.blocker.txn) }, 'transaction ', row.blocker.txn), ' of ', h('strong', {}, row.blocker.producer ?? 'an unknown producer'), ', open for ', age(row.blocker.since_ms, now), '.') : null,
      large(row.strip, 'The end of the partition, enlarged', part)) : null,
  ];
}

/** A strip with its bounds named below. */
function large(data, label, [from, to] = [data.from, data.to]) {
  const span = Math.max(1, to - from);
  const bounds = [['log start', data.from], ['last stable', data.stable], ['high watermark', data.high], ['log end', data.to]];
  const places = new Map();
  for (const [name, at] of bounds) if (at >= from && at <= to) places.set(at, [...(places.get(at) ?? []), name]);
  return h('figure.scaled', {}, strip(data, { label, from, to, large: true }),
    h('figcaption', {}, [...places].map(([at, names], index) => {
      const percent = ((at - from) / span) * 100;
      const side = percent > 60 ? { right: `${(100 - percent).toFixed(2)}%` } : { left: `${percent.toFixed(2)}%` };
      return h('span', { class: percent > 60 ? 'before' : null, style: { ...side, top: `${index * 1.25}rem` } }, `${names.join(', ')} `, h('span.quiet', {}, number(at)));
    }), h('span.room', { style: { height: `${places.size * 1.25 + 0.25}rem` } })));
}
