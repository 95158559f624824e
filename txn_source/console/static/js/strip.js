/**
 * A partition as a strip: its ledgers by tier, bounds, open and aborted transactions, to scale.
 *
 * Across lie messages since the partition was made. Three lanes: hot copies, tiered copies, transactions. Place and
 * shape tell all that colour does: an open transaction is a high bar, an aborted one a low hatched one; hatching lies
 * over what is held back, dots over what has too few copies.
 */

import { h, s } from './dom.js';
import { bytes, count, number } from './format.js';

const LANES = { small: { hot: [0, 9], tiered: [10, 9], txns: [21, 9], height: 30 }, large: { hot: [0, 22], tiered: [24, 22], txns: [50, 16], height: 66 } };

/** The patterns, once for the document. */
function patterns() {
  if (document.getElementById('patterns')) return;
  const pattern = (id, size, ...shapes) => s('pattern', { id, width: size, height: size, patternUnits: 'userSpaceOnUse' }, shapes);
  document.body.append(s('svg', { id: 'patterns', class: 'unseen', 'aria-hidden': 'true', focusable: 'false' }, s('defs', {},
    pattern('held', 6, s('path', { class: 'held-line', d: 'M-1 7 7 -1M-1 1 1 -1M5 7 7 5' })),
    pattern('ended', 4, s('path', { class: 'aborted-line', d: 'M-1 5 5 -1M-1 1 1 -1M3 5 5 3' })),
    pattern('short', 6, s('circle', { class: 'short-dot', cx: 3, cy: 3, r: 1.3 })))));
}

/**
 * Return the strip as an image.
 *
 * Args: `data`: the `strip` of a partition. `label`: whose it is. `from`, `to`: a part of it, [from, to); all of it
 * otherwise. `large`: on a page of its own. `marks`: [{at, name}], further places (a cursor, say).
 */
export function strip(data, { label = '', from = data.from, to = data.to, large = false, marks = [] } = {}) {
  patterns();
  const lanes = large ? LANES.large : LANES.small;
  const span = Math.max(1, to - from);
  const x = (value) => Math.min(100, Math.max(0, ((value - from) / span) * 100));
  const seen = (piece) => piece.to > from && piece.from < to;

  /** A piece of a lane, never thinner than can be seen. */
  function piece(name, [y, height], start, end, title, gap = 0) {
    const width = x(end) - x(start);
    // Gaps between the thinnest would look like another kind.
    const shown = gap && width > 0.5 ? `max(1.5px, calc(${width.toFixed(3)}% - ${gap}px))` : `max(2px, ${width.toFixed(3)}%)`;
    return s(`rect.${name}`, { x: `${x(start).toFixed(3)}%`, y, height, style: { width: shown } }, title ? s('title', {}, title) : null);
  }

  function line(name, at, title) {
    const shape = s(`line.${name}`, { x1: `${x(at).toFixed(3)}%`, x2: `${x(at).toFixed(3)}%`, y1: 0, y2: lanes.height }, s('title', {}, title));
    return at >= from && at <= to ? shape : null;
  }

  const ledgers = data.ledgers.filter(seen);
  const held = data.high > data.stable && data.high > from;
  return s('svg', { class: large ? 'strip large' : 'strip', role: 'img', 'aria-label': `${label ? `${label}: ` : ''}${stripText(data)}`, height: lanes.height, width: '100%' },
    s('rect.lane', { x: 0, y: lanes.hot[0], width: '100%', height: lanes.hot[1] }),
    s('rect.lane', { x: 0, y: lanes.tiered[0], width: '100%', height: lanes.tiered[1] }),
    ledgers.filter(({ hot }) => hot).map((ledger) => piece(ledger.state === 'open' ? 'hot.growing' : 'hot', lanes.hot, ledger.from, ledger.to, ledgerText(ledger), 1)),
    ledgers.filter(({ tiered }) => tiered).map((ledger) => piece('tiered', lanes.tiered, ledger.from, ledger.to, ledgerText(ledger), 1)),
    ledgers.filter(isOlder).map((ledger) => piece('older', [0, lanes.tiered[0] + lanes.tiered[1]], ledger.from, ledger.to, ledgerText(ledger), 1)),
    held ? piece('held', [0, lanes.tiered[0] + lanes.tiered[1]], data.stable, data.high, `${count(data.high - data.stable, 'message')} held back`) : null,
    data.to > data.high ? piece('short', [0, lanes.tiered[0] + lanes.tiered[1]], data.high, data.to, `${count(data.to - data.high, 'message')} with too few copies`) : null,
    data.aborted.filter(seen).map((txn) => piece('aborted', [lanes.txns[0] + lanes.txns[1] * 0.4, lanes.txns[1] * 0.6], txn.from, txn.to, abortedText(txn))),
    data.open.filter(seen).map((txn) => piece('open', lanes.txns, txn.from, txn.to, openText(txn))),
    held ? line('stable', data.stable, `Last stable: read_committed reads below it`) : null,
    data.to > data.high ? line('high', data.high, 'High watermark: read_uncommitted reads below it') : null,
    marks.map(({ at, name }) => line('mark', at, name)));
}

/** The oldest ledgers of many come as one, without their copies. */
const isOlder = ({ hot }) => hot === null;

/** Whether the oldest ledgers of a strip are drawn as one. */
export const hasOlder = (data) => data.ledgers.some(isOlder);

function ledgerText(ledger) {
  const { id, merged, from, to, state, hot, tiered, bytes: size } = ledger;
  const what = `${id === null || merged > 1 ? count(merged ?? 1, 'ledger') : `Ledger ${id}`}: ${count(to - from, 'message')}`;
  if (isOlder(ledger)) return `${what}; the page of the partition has them one by one`;
  return `${what}, ${bytes(size)}, ${state}, ${[hot && 'hot', tiered && 'tiered'].filter(Boolean).join(' and ') || 'no copy'}`;
}

const openText = ({ txn, merged, from, to, messages }) =>
  `${merged > 1 ? `${number(merged)} open transactions` : `Open transaction ${txn}`}: ${messages === null || messages === undefined ? '' : `${count(messages, 'message')} `}among ${number(to - from)}`;
const abortedText = ({ txn, merged, messages }) =>
  `${merged > 1 ? `${number(merged)} aborted transactions` : `Aborted transaction ${txn}`}: ${count(messages, 'message')}`;

const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);

/** The strip in words. */
export function stripText(data) {
  const ledgers = (wanted) => sum(data.ledgers.filter(wanted), ({ merged }) => merged ?? 1);
  const open = sum(data.open, ({ merged }) => merged ?? 1);
  const aborted = sum(data.aborted, ({ merged }) => merged ?? 1);
  const parts = [
    `${count(data.to - data.from, 'message')} in ${count(ledgers(() => true), 'ledger')}, ${number(ledgers(({ hot }) => hot))} hot, ${number(ledgers(({ tiered }) => tiered))} tiered`,
    hasOlder(data) ? `${number(ledgers(isOlder))} older ones drawn as one` : null,
    open ? `${data.more_open ? 'more than ' : ''}${count(open, 'open transaction')}` : null,
    data.high > data.stable ? `${count(data.high - data.stable, 'message')} held back` : 'nothing held back',
    data.to > data.high ? `${count(data.to - data.high, 'message')} with too few copies` : null,
    aborted ? `${data.more_aborted ? 'more than ' : ''}${count(aborted, 'aborted transaction')}` : null,
  ];
  return `${parts.filter(Boolean).join('; ')}.`;
}

/** The end of a strip with what is held back, and a little before it: [from, to], or null if nothing is. */
export function heldPart(data) {
  if (data.high <= data.stable) return null;
  const from = Math.min(data.stable, ...data.open.map((txn) => txn.from));
  return [Math.max(data.from, from - Math.ceil((data.to - from) * 0.15)), data.to];
}

/** What the shapes mean. */
export function legend({ marks = null, older = false } = {}) {
  patterns();
  const sample = (...shapes) => s('svg', { class: 'sample', width: 22, height: 14, 'aria-hidden': 'true' }, shapes);
  const full = { x: 0, y: 0, width: 22, height: 14 };
  const items = [
    [sample(s('rect.hot', { ...full, height: 7 }), s('rect.lane', { ...full, y: 8, height: 6 })), 'hot copy'],
    [sample(s('rect.lane', { ...full, height: 6 }), s('rect.tiered', { ...full, y: 7, height: 7 })), 'tiered copy'],
    [sample(s('rect.open', { ...full, y: 2, height: 10 })), 'open transaction'],
    [sample(s('rect.aborted', { ...full, y: 6, height: 6 })), 'aborted transaction'],
    [sample(s('rect.hot', full), s('rect.held', full), s('line.stable', { x1: 1, x2: 1, y1: 0, y2: 14 })), 'held back, from the last stable position on'],
    [sample(s('rect.hot', full), s('rect.short', full)), 'too few copies'],
    older ? [sample(s('rect.older', full)), 'older ledgers, drawn as one'] : null,
    marks ? [sample(s('line.mark', { x1: 11, x2: 11, y1: 0, y2: 14 })), marks] : null,
  ];
  return h('ul.legend', { 'aria-label': 'Legend' }, items.filter(Boolean).map(([shape, text]) => h('li', {}, shape, text)));
}
