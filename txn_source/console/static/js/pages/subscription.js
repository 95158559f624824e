/** One subscription: where it stands on each partition, who consumes it, and its seek. */

import { get } from '../api.js';
import { h, patch } from '../dom.js';
import { age, count, href, number } from '../format.js';
import { empty, facts, heading, partitionLink } from '../parts.js';
import { seekPanel } from '../seek.js';
import { legend, strip } from '../strip.js';
import { virtualTable } from '../virtual_table.js';
import { heldBack, levelBadge } from './subscriptions.js';
import { figure } from './topics.js';

/** The page. */
export function page({ topic, subscription: name, query, setQuery, refresh }) {
  const about = h('div');
  const consumers = h('section.section', { 'aria-labelledby': 'consumers-title' });
  const seek = seekPanel({ topic, name, sought: refresh });
  const partitions = virtualTable({
    caption: `Partitions of ${topic} as ${name} has them`,
    noun: ['partition', 'partitions'],
    columns: [
      { name: 'partition', title: 'Partition', sort: true, width: 'min(7.5rem, 24vw)', render: (row) => partitionLink(topic, row.partition, number(row.partition)) },
      { name: 'strip', title: 'Where it stands', render: standing },
      { name: 'mark', title: 'Next message', width: '9rem', wide: true, hint: 'The first that is not acknowledged', render: (row) => h('code', {}, row.mark) },
      { name: 'next_ms', title: 'Published', align: 'end', width: '11rem', wide: true, hint: 'When its next message was published',
        render: (row, { now_ms: now }) => (row.next_ms === null ? h('span.quiet', {}, '–') : age(row.next_ms, now, { suffix: ' ago' })) },
      { name: 'backlog', title: 'Backlog', sort: true, align: 'end', width: 'min(8rem, 24vw)', render: (row) => figure(row.backlog) },
      { name: 'held_back_messages', title: 'Held back', sort: true, align: 'end', width: '8rem', wide: true, render: heldBack },
    ],
    load: (asked) => get('subscription_partitions', { topic, name, ...asked }),
    key: (row) => row.partition,
    tall: true,
    sort: query.get('sort') ?? 'partition',
    descending: query.has('descending'),
    changed: ({ sort, descending }) => setQuery({ sort, descending }),
  });

  const trail = [['Topics', '#/topics'], [topic, href(['topics', topic])], ['Subscriptions', href(['topics', topic], { tab: 'subscriptions' })]];

  async function update() {
    const row = await get('subscription', { topic, name });
    patch(about, facts([
      ['Isolation level', levelBadge(row.isolation_level)],
      ['Type', row.durable ? row.type : `${row.type}, not durable`],
      ['Backlog', h('strong', {}, count(row.backlog, 'message'))],
      ['Held back', heldBack({ ...row, topic })],
      ['Next message has waited', row.waits_since_ms === null ? null : age(row.waits_since_ms, row.now_ms)],
      ['Delivered, to be delivered again', row.redeliverable ? number(row.redeliverable) : null],
      ['Epoch', number(row.epoch)],
      ['Ignored acknowledgements', row.ignored_acknowledgements
        ? h('span', { title: 'From before a seek or a redelivery' }, number(row.ignored_acknowledgements)) : null],
    ]));
    patch(consumers, h('h2', { id: 'consumers-title' }, 'Consumers'), consumerTable(row));
    seek.follow(row);
    await partitions.refresh();
  }

  return {
    title: `Subscription ${name}`,
    element: h('div', {}, heading(name, { trail }), about, seek.element,
      h('section.section', { 'aria-labelledby': 'partitions-title' },
        h('h2', { id: 'partitions-title' }, 'Partitions'), legend({ marks: 'its next message' }), partitions.element),
      consumers),
    update,
    close() {
      partitions.close();
      seek.close();
    },
  };
}

/** The partition's strip with a mark where it stands. */
const standing = (row) =>
  strip(row.strip, { label: `Partition ${row.partition}`, marks: [{ at: row.cursor, name: `Its next message: ${row.mark}` }] });

function consumerTable({ connected, now_ms: now }) {
  if (!connected.length) return empty('No consumer is connected.', 'What is published waits for one.');
  return h('div.scroll', {}, h('table', {}, h('caption.unseen', {}, 'Consumers'),
    h('thead', {}, h('tr', {}, ['Consumer', 'State', 'Held by', 'Connected for', 'Unacknowledged'].map((title, at) =>
      h('th', { scope: 'col', class: at > 2 ? 'end' : null }, title)))),
    h('tbody', {}, connected.map((each) => h('tr', { key: each.id },
      h('th', { scope: 'row' }, h('bdi', {}, each.name)),
      h('td', {}, each.active === false ? 'waits for its turn' : 'active'),
      h('td', {}, each.host ? [h('bdi', {}, each.host), each.pid ? h('span.quiet', {}, ` process ${each.pid}`) : null] : h('span.quiet', {}, '–')),
      h('td.end', {}, each.connected_ms ? age(each.connected_ms, now) : '–'),
      h('td.end', {}, number(each.unacknowledged)))))));
}
