/** Where a subscription stands on a partition, to scale: what is done, what is to be delivered, what is held back. */

import { h } from './dom.js';
import { count } from './format.js';

/** `row`: {cursor (messages before its mark), backlog, held_back_messages}. */
export function cursorStrip({ cursor, backlog, held_back_messages: held = 0 }) {
  const parts = [['done', cursor ?? 0, 'done'], ['backlog', backlog, 'to be delivered'], ['held', held ?? 0, 'held back']];
  const total = parts.reduce((sum, [, messages]) => sum + messages, 0);
  const told = parts.filter(([, messages]) => messages).map(([, messages, what]) => `${count(messages, 'message')} ${what}`).join(', ') || 'no messages';
  return h('div.cursor-strip', { role: 'img', 'aria-label': told, title: told },
    parts.map(([name, messages]) => h(`span.${name}`, { style: { 'flex-grow': String(messages), 'min-width': messages ? '3px' : '0' } })),
    total ? h('span.cursor', { style: { left: `${(100 * (cursor ?? 0)) / total}%` } }) : null);
}

/** What its colours and patterns mean. */
export const cursorLegend = () => h('p.legend', { 'aria-hidden': 'true' },
  [['done', 'done'], ['backlog', 'to be delivered'], ['held', 'held back by open transactions']].map(([name, text]) =>
    h('span', {}, h(`i.swatch.${name}`, {}), text)));
