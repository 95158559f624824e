/** Subscriptions of the log, or of one topic: how far each is behind, and what it waits for. */

import { get } from '../api.js';
import { h } from '../dom.js';
import { age, href, number } from '../format.js';
import { badge, heading, subscriptionLink, topicLink } from '../parts.js';
import { virtualTable } from '../virtual_table.js';
import { figure } from './topics.js';

const LEVELS = [['', 'All'], ['read_committed', 'read_committed'], ['read_uncommitted', 'read_uncommitted']];

/** A level as a badge. */
export const levelBadge = (level) =>
  level === 'read_committed' ? badge('● read_committed', 'plain', 'Sees what is decided')
    : badge('○ read_uncommitted', 'plain', 'Sees everything at once');

/** The page. */
export function page(params) {
  const shown = panel(params);
  return { title: 'Subscriptions', ...shown, element: h('div', {}, heading('Subscriptions'), shown.element) };
}

/** Those of one topic, or without one of all. */
export function panel({ topic = null, query, setQuery }) {
  let level = query.get('level') ?? '';
  const columns = [
    { name: 'name', title: 'Subscription', sort: true, render: name },
    topic ? null : { name: 'topic', title: 'Topic', sort: true, wide: true, render: (row) => topicLink(row.topic) },
    { name: 'isolation_level', title: 'Isolation level', sort: true, width: '11.5rem', wide: true, render: (row) => levelBadge(row.isolation_level) },
    { name: 'type', title: 'Type', sort: true, width: '6.5rem', wide: true, render: (row) => row.type },
    { name: 'backlog', title: 'Backlog', sort: true, align: 'end', width: 'min(8rem, 24vw)',
      hint: 'Messages that its level shows and that are not acknowledged', render: (row) => figure(row.backlog) },
    { name: 'held_back_messages', title: 'Held back', sort: true, align: 'end', width: '7rem', wide: true,
      hint: 'Messages behind open transactions, which it doesn’t see yet', render: heldBack },
    { name: 'waits_since_ms', title: 'Waiting', sort: true, align: 'end', width: 'min(8rem, 26vw)',
      hint: 'How long its next message has waited for a consumer, or for an open transaction to end',
      render: (row, { now_ms: now }) => (row.waits_since_ms === null ? h('span.quiet', {}, '–') : age(row.waits_since_ms, now)) },
    { name: 'consumers', title: 'Consumers', sort: true, align: 'end', width: '7rem', wide: true,
      render: (row) => (row.consumers ? number(row.consumers) : h('span.quiet', {}, 'none')) },
    { name: 'epoch', title: 'Epoch', sort: true, align: 'end', width: '5.5rem', wide: true,
      hint: 'How often it was moved', render: (row) => number(row.epoch) },
  ].filter(Boolean);
  const table = virtualTable({
    caption: topic ? `Subscriptions of ${topic}` : 'Subscriptions',
    noun: ['subscription', 'subscriptions'],
    columns,
    load: (asked) => get('subscriptions', { topic, level, ...asked }),
    key: (row) => `${row.topic} ${row.name}`,
    rowClass: () => (topic ? null : 'of-topic'),
    sort: query.get('sort') ?? 'backlog',
    descending: query.has('sort') ? query.has('descending') : true,
    search: query.get('search') ?? '',
    searchable: topic ? 'Search subscriptions' : 'Search subscriptions and topics',
    tools: [h('fieldset.choice', {}, h('legend.unseen', {}, 'Isolation level'), LEVELS.map(([value, text]) =>
      h('label', {}, h('input', { type: 'radio', name: 'level', value, checked: value === level, onchange: choose }), text)))],
    changed: ({ sort, descending, search }) => setQuery({ sort, descending, search }),
    empty: [topic ? 'This topic has no subscriptions.' : 'There are no subscriptions.',
      'A consumer makes one when it subscribes, or ', h('code', {}, 'txnlog subscriptions create'), '.'],
  });

  function choose(event) {
    level = event.target.value;
    setQuery({ level });
    table.reload().catch(() => {});
  }

  function name(row) {
    return [subscriptionLink(row.topic, row.name), row.durable ? null : [' ', h('span.quiet', { title: 'It goes with its consumers' }, 'not durable')],
      topic ? null : h('div.quiet', {}, row.topic)];
  }

  return { element: table.element, update: () => table.refresh(), close: () => table.close() };
}

/** What open transactions hold back from a subscription, as a link to who does. */
export function heldBack(row) {
  if (!row.held_back_messages) return figure(0);
  return h('a.held-back', { href: href(['blockers'], { search: row.topic }) }, figure(row.held_back_messages));
}
