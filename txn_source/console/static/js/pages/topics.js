/** All topics, and which of them are held back. */

import { get } from '../api.js';
import { h } from '../dom.js';
import { age, byteRate, bytes, compact, count, number, rate } from '../format.js';
import { heading, topicLink } from '../parts.js';
import { virtualTable } from '../virtual_table.js';

/** A figure in short, the whole one as its title; nought is quiet. */
export const figure = (value, noun = 'message') =>
  h('span', { class: value ? null : 'zero', title: value === null || value === undefined ? null : count(value, noun) }, compact(value));

/** What to say where no topic shows: with tokens there may be others. */
export const noTopics = (about) => about.tokens
  ? ['There is no topic that your token may see.', 'Roles name the topics that they are for.']
  : ['This log has no topics yet.', 'Make one: ', h('code', {}, 'txnlog topics create orders --partitions 4')];

export function page({ query, setQuery, about }) {
  const table = virtualTable({
    caption: 'Topics',
    noun: ['topic', 'topics'],
    searchable: 'Search topics',
    search: query.get('search') ?? '',
    sort: query.get('sort') ?? 'name',
    descending: query.has('descending'),
    changed: setQuery,
    key: (row) => row.name,
    load: (asked) => get('topics', asked),
    empty: noTopics(about),
    columns: [
      { name: 'name', title: 'Topic', sort: true, render: (row) => topicLink(row.name) },
      { name: 'held_back_messages', title: 'Held back', sort: true, align: 'end', width: '7rem', hint: 'Messages that wait behind an open transaction',
        render: (row) => h('span', { class: row.held_back_messages ? 'held-back' : null }, figure(row.held_back_messages)) },
      { name: 'held_back_since_ms', title: 'Held back for', sort: true, align: 'end', width: '8.5rem', wide: true,
        hint: 'How long the first of them has waited', render: (row, { now_ms: now }) => age(row.held_back_since_ms, now) },
      { name: 'rate_messages', title: 'Rate', sort: true, align: 'end', width: '8rem', hint: 'Messages a second', render: (row) => h('span', { class: row.rate_messages ? null : 'zero', title: byteRate(row.rate_bytes) }, rate(row.rate_messages)) },
      { name: 'messages', title: 'Messages', sort: true, align: 'end', width: '8rem', wide: true, render: (row) => figure(row.messages) },
      { name: 'bytes', title: 'Size', sort: true, align: 'end', width: '7rem', roomy: true, render: (row) => bytes(row.bytes) },
      { name: 'partitions', title: 'Partitions', sort: true, align: 'end', width: '7rem', roomy: true, render: (row) => number(row.partitions) },
      { name: 'backlog', title: 'Backlog', sort: true, align: 'end', width: '8rem', wide: true, hint: 'Messages that subscriptions have yet to acknowledge', render: (row) => figure(row.backlog) },
      { name: 'last_publish_ms', title: 'Last message', sort: true, align: 'end', width: '8.5rem', roomy: true, hint: 'How long ago', render: (row, { now_ms: now }) => age(row.last_publish_ms, now) },
    ],
  });
  return {
    title: 'Topics',
    element: h('div', {}, heading('Topics'), table.element),
    update: table.refresh,
    close: table.close,
  };
}
