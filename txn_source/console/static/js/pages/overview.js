/** The log at one look: what needs attention, how much comes and waits, who holds it back. */

import { get } from '../api.js';
import { blockerCard, blockerHref } from '../blocker.js';
import { h, patch } from '../dom.js';
import { age, byteRate, bytes, compact, count, duration, number, rate } from '../format.js';
import { empty, facts, heading, icon, topicLink } from '../parts.js';
import { sparkline } from '../sparkline.js';
import { noTopics } from './topics.js';

const POINTS = 4;
const TOPICS = 6;
const BLOCKERS = 2;

export function page({ about, noteFigures }) {
  const shown = h('div');
  return {
    title: 'Overview',
    element: h('div', {}, heading('Overview'), shown),
    async update() {
      const [log, blockers, topics] = await Promise.all([get('overview'), get('blockers', { limit: BLOCKERS }),
        get('topics', { limit: TOPICS, sort: 'rate_messages', descending: 1 })]);
      noteFigures(log);
      patch(shown, log.topics ? [attention(log), tiles(log), waiting(log, blockers), busiest(topics), upkeep(log)]
        : empty(...noTopics(about)));
    },
  };
}

function attention({ attention: points }) {
  if (!points.length) return h('p.all-well', { key: 'attention' }, icon('ok'), ' Nothing needs attention.');
  return h('section.attention', { key: 'attention', 'aria-label': 'Needs attention' }, h('ul', {}, points.slice(0, POINTS).map(point)),
    points.length > POINTS ? h('details', {}, h('summary', {}, `and ${number(points.length - POINTS)} more`), h('ul', {}, points.slice(POINTS).map(point))) : null);
}

function point({ severity, code, fact, link }) {
  return h('li', { key: `${severity} ${code} ${link}`, class: severity }, h('a', { href: link }, icon(severity), h('span', {}, fact), h('span.go', { 'aria-hidden': 'true' }, '→')));
}

function tiles(log) {
  const { history } = log;
  const points = (values) => (history?.t ?? []).map((t, at) => [t, values[at]]);
  const tile = (name, value, title, below, drawn, kind = null, to = null) => h('div.tile', { key: name, class: kind }, h('h2', {}, to ? h('a', { href: to }, name) : name),
    h('p.value', { title }, value), h('p.quiet', {}, below), drawn ? h('div.drawn', {}, drawn) : null);
  const oldest = log.oldest_open_ms === null ? null : `, oldest ${duration(log.now_ms - log.oldest_open_ms)}`;
  return h('div.tiles', { key: 'tiles' },
    tile('Held back', compact(log.held_back_messages), `${number(log.held_back_messages)} messages`, [count(log.open_transactions, 'open transaction'), oldest],
      sparkline(points(history?.held_back_messages ?? []), { name: 'Messages held back', text: number }), log.held_back_messages ? 'warns' : null, '#/blockers'),
    tile('Written', rate(log.rate_messages), null, [byteRate(log.rate_bytes)], sparkline(points(history?.rate_messages ?? []), { name: 'Messages a second', text: rate })),
    tile('Backlog', compact(log.backlog), `${number(log.backlog)} messages`, [count(log.subscriptions, 'subscription'), ', ', count(log.consumers, 'consumer')], null, null, '#/subscriptions'),
    tile('Stored', compact(log.messages), `${number(log.messages)} messages`, [bytes(log.bytes), ' in ', count(log.topics, 'topic'), ', ', count(log.partitions, 'partition')], null, null, '#/topics'));
}

function waiting(log, { rows, total, now_ms: now }) {
  if (!rows.length) return null;
  return h('section.section', { key: 'waiting', 'aria-labelledby': 'waiting' }, h('div.section-head', {}, h('h2', { id: 'waiting' }, 'Who blocks whom'),
    h('a', { href: '#/blockers' }, total > rows.length ? `All ${number(total)} open transactions` : 'Look closer, or abort')),
  h('div.stack', {}, rows.map((row) => h('div.linked', { key: row.txn }, blockerCard(row, { now, level: 3 }), h('a.over', { href: blockerHref(row.txn), 'aria-label': `Transaction ${row.txn} among who blocks whom` })))));
}

function busiest({ rows: found, now_ms: now }) {
  const busy = found.filter((row) => row.rate_messages > 0);
  const rows = busy.length ? busy : found;
  return h('section.section', { key: 'busiest', 'aria-labelledby': 'busiest' }, h('div.section-head', {}, h('h2', { id: 'busiest' }, busy.length ? 'Busiest topics' : 'Topics'), h('a', { href: '#/topics' }, 'All topics')),
    h('div.table-card', {}, h('table', {}, h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Topic'), h('th.end', { scope: 'col' }, 'Messages/s'), h('th.end.wide', { scope: 'col' }, 'Bytes/s'),
      h('th.end', { scope: 'col' }, 'Held back'), h('th.end.wide', { scope: 'col' }, 'Backlog'), h('th.end.wide', { scope: 'col' }, 'Last message'))),
    h('tbody', {}, rows.map((row) => h('tr', { key: row.name }, h('th', { scope: 'row' }, topicLink(row.name)),
      h('td.end', {}, row.rate_messages === null ? '–' : compact(row.rate_messages)), h('td.end.wide', {}, byteRate(row.rate_bytes)),
      h('td.end', { class: row.held_back_messages ? 'held-back' : 'zero' }, compact(row.held_back_messages)), h('td.end.wide', {}, compact(row.backlog)), h('td.end.wide', {}, age(row.last_publish_ms, now, { suffix: ' ago' }))))))));
}

function upkeep(log) {
  return h('section.section', { key: 'upkeep', 'aria-label': 'Upkeep' }, facts([
    log.offloads_under_way === null ? null : ['Offloads under way', number(log.offloads_under_way)],
    log.doomed_files === null ? null : ['Files to be deleted', number(log.doomed_files)],
    ['Messages with too few copies', number(log.short_messages)],
  ]));
}
