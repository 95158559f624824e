/** An open transaction as a sentence of three parts: who | holds back what | so who waits. With its abort. */

import { post } from './api.js';
import { ask } from './dialog.js';
import { h } from './dom.js';
import { age, bytes, compact, count, duration, href, number, time } from './format.js';
import { partitionLink, shortName, subscriptionLink } from './parts.js';

const SHOWN = 4;
const share = (part, whole) => `${((part / Math.max(1, whole)) * 100).toFixed(2)}%`;

/**
 * Return the card of a row of GET /api/blockers.
 *
 * Args (one object): `now`: the service's clock; `abort()` is called by its button, null: no button; `unfolded`,
 * `unfold()`: whether all partitions show, and what changes it; `detail`: what shows then; `marked`: it was linked to;
 * `level`: of its heading.
 */
export function blockerCard(row, { now, abort = null, unfolded = false, unfold = null, detail = null, marked = false, level = 2 }) {
  const id = `txn-${row.txn}`;
  const partitions = row.partitions_total ?? row.partitions.length;
  return h('article.card.blocker', { key: row.txn, id, 'aria-labelledby': `${id}-name`, class: marked ? 'marked' : null },
    h('div.who', {}, h(`h${level}.name`, { id: `${id}-name` }, 'Transaction ', row.txn), who(row, now),
      abort && row.may_abort ? h('button.warns', { type: 'button', onclick: abort }, 'Abort…') : null,
      abort && !row.may_abort ? h('p.quiet.small', {}, 'To abort it takes the role admin on its topics.') : null),
    h('div.what', {}, h(`h${level + 1}.claim`, {}, h('span.verb', {}, 'holds back '), row.held_back_messages ? [h('strong', { title: number(row.held_back_messages) }, number(row.held_back_messages)), ` ${row.held_back_messages === 1 ? 'message' : 'messages'} `, h('span.quiet', {}, bytes(row.held_back_bytes))] : 'nothing'),
      bars(row, unfolded), unfold && partitions > 0 ? h('button.plain.more', { type: 'button', 'aria-expanded': String(unfolded), onclick: unfold }, unfolded ? 'Hide the strips' : `${count(partitions, 'partition')} as ${partitions === 1 ? 'a strip' : 'strips'}`) : null),
    h('div.whom', {}, h(`h${level + 1}.claim`, {}, h('span.verb', {}, 'so '), waitText(row)),
      row.subscriptions.length ? h('ul.waiting', {}, (unfolded ? row.subscriptions : row.subscriptions.slice(0, SHOWN)).map((sub) =>
        h('li', {}, h('span.name', {}, subscriptionLink(sub.topic, sub.name), h('span.quiet.small', {}, ' of ', shortName(sub.topic))), h('span.figure', { title: `${number(sub.waiting_messages)} messages` }, compact(sub.waiting_messages))))) : null,
      !unfolded && row.subscriptions.length > SHOWN ? h('p.quiet.small', {}, `and ${number(row.subscriptions.length - SHOWN)} more`) : null),
    unfolded && detail ? h('div.detail', {}, detail) : null);
}

function waitText(row) {
  const all = row.subscriptions_total ?? row.subscriptions.length;
  return all ? [h('strong', {}, number(all)), all === 1 ? ' subscription waits' : ' subscriptions wait'] : 'no subscription waits';
}

/** The time of day, with the date if it isn't today's. */
function clock(ms, now) {
  const [day, at] = time(ms).split(' ');
  return time(now).startsWith(day) ? at : `${day} ${at}`;
}

function who(row, now) {
  const lives = row.deadline_ms - row.started_ms;
  return [
    h('p.age', {}, 'open for ', h('strong', {}, age(row.started_ms, now))),
    h('div.meter', { title: `Begun ${time(row.started_ms)}, times out ${time(row.deadline_ms)}`, 'aria-hidden': 'true' },
      h('i', { style: { width: share(Math.min(lives, Math.max(0, now - row.started_ms)), lives) } })),
    h('p.quiet.small', {}, `since ${clock(row.started_ms, now)}, times out ${now < row.deadline_ms ? `in ${duration(row.deadline_ms - now)}` : 'now'}`),
    h('dl.by', {}, h('dt', {}, 'producer'), h('dd', { title: row.producer }, row.producer ?? h('span.quiet', {}, 'none has written yet')),
      row.owner ? [h('dt', {}, 'owner'), h('dd', {}, row.owner)] : null),
  ];
}

function bars(row, unfolded) {
  if (!row.partitions.length) return h('p.quiet.small', {}, 'It has written nothing yet.');
  const all = row.partitions_total ?? row.partitions.length;
  const ordered = [...row.partitions].sort((a, b) => b.held_back_messages - a.held_back_messages);
  const most = ordered[0].held_back_messages;
  const shown = unfolded ? ordered : ordered.slice(0, SHOWN);
  return [
    h('ul.bars', {}, shown.map((part) => h('li', { key: `${part.topic}/${part.partition}` },
      h('span.name', {}, partitionLink(part.topic, part.partition)),
      h('span.bar', { role: 'img', 'aria-label': `${number(part.own_messages)} of its own among ${count(part.held_back_messages, 'message')}` },
        h('i.own', { style: { width: share(part.own_messages, most) } }), h('i.others', { style: { width: share(part.held_back_messages - part.own_messages, most) } })),
      h('span.figure', { title: `${number(part.held_back_messages)} messages, ${bytes(part.held_back_bytes)}, from ${part.first_position} on` }, compact(part.held_back_messages)),
      part.is_first ? null : h('span.note.quiet.small', {}, 'an earlier transaction holds it back, too')))),
    all > shown.length ? h('p.quiet.small', {}, `and ${count(all - shown.length, 'partition')} more`) : null,
  ];
}

/** What the bars mean. */
export const barLegend = () => h('ul.legend', { 'aria-label': 'Legend' },
  h('li', {}, h('span.bar.sample', { 'aria-hidden': 'true' }, h('i.own', { style: { width: '100%' } })), 'its own messages'),
  h('li', {}, h('span.bar.sample', { 'aria-hidden': 'true' }, h('i.others', { style: { width: '100%' } })), 'others’ messages that wait behind it'));

/** Ask, and abort it. Returns what the service answered, or null if it was left. */
export function askToAbort(row, now) {
  const own = row.own_messages;
  const all = row.partitions_total ?? row.partitions.length;
  const behind = row.partitions.filter((part) => !part.is_first).length;
  const body = [
    h('p', {}, 'Producer ', h('strong', {}, row.producer ?? 'unknown'), row.owner ? [', owner ', h('strong', {}, row.owner)] : null,
      ', open for ', h('strong.nowrap', {}, duration(now - row.started_ms)), '.'),
    h('div.outcome.lost', {}, h('h3', {}, 'Lost: ', count(own, 'message'), ' of its own'),
      h('p', {}, own ? 'Readers at read_committed never get them. The producer’s next call under this transaction fails with TXN_ENDED.' : 'It has written nothing. The producer’s next call under it fails with TXN_ENDED.')),
    h('div.outcome.freed', {}, h('h3', {}, 'Released: what waits behind it', behind ? ` on ${count(row.partitions.length - behind, 'partition')}` : ''),
      h('p', {}, row.subscriptions.length ? ['Subscriptions that go on: ', row.subscriptions.slice(0, 6).map((sub, at) => [at ? ', ' : '', h('strong', {}, sub.name)]), row.subscriptions.length > 6 ? ` and ${row.subscriptions.length - 6} more` : '', '. '] : 'No subscription waits for it. ',
        behind ? `On ${count(behind, 'partition')} an earlier transaction goes on holding back.` : '')),
    row.partitions.length ? h('div.scrolls', { tabindex: '0', role: 'region', 'aria-label': 'By partition' }, h('table', {},
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Partition'), h('th.end', { scope: 'col' }, 'Lost'), h('th.end', { scope: 'col' }, 'Released'))),
      h('tbody', {}, row.partitions.map((part) => h('tr', {}, h('th', { scope: 'row' }, `${part.topic} / ${part.partition}`),
        h('td.end', {}, number(part.own_messages)), h('td.end', {}, part.is_first ? number(part.held_back_messages - part.own_messages) : h('span.quiet', {}, 'stays, behind an earlier one'))))))) : null,
    all > row.partitions.length ? h('p.quiet.small', {}, `These ${row.partitions.length} hold back most, of ${count(all, 'partition')}.`) : null,
    h('p.quiet', {}, 'This can’t be taken back.'),
  ];
  return ask({ title: `Abort transaction ${row.txn}?`, body, act: `Abort transaction ${row.txn}`, danger: true, run: () => post('transactions/abort', { txn: row.txn }) });
}

/** What came of an abort, as a sentence. */
export function abortedText({ txn, released: all }) {
  const released = all.filter((part) => part.messages > 0);
  if (!released.length) return `Transaction ${txn} is aborted. Nothing waited for it alone.`;
  const messages = released.reduce((total, part) => total + part.messages, 0);
  return `Transaction ${txn} is aborted: ${count(messages, 'message')} released on ${count(released.length, 'partition')}.`;
}

/** The address of one blocker. */
export const blockerHref = (txn) => href(['blockers'], { txn });
