/** Who blocks whom: open transactions, what each holds back, who waits for that, and their abort. */

import { get } from '../api.js';
import { abortedText, askToAbort, barLegend, blockerCard } from '../blocker.js';
import { h, patch, say } from '../dom.js';
import { bytes, count, duration, number } from '../format.js';
import { empty, heading, icon, partitionLink } from '../parts.js';
import { heldPart, legend, strip } from '../strip.js';

const AT_ONCE = 20;
// Each is a request.
const STRIPS_EVERY_MS = 10_000;
const ORDERS = [['', 'Oldest first'], ['held', 'Most held back first']];

export function page({ query, setQuery, refresh, noteFigures }) {
  let limit = AT_ONCE;
  let order = query.get('order') ?? '';
  let search = query.get('search') ?? '';
  let typing = 0;
  const linked = query.get('txn');
  const unfolded = new Set(linked ? [linked] : []);
  const strips = new Map();
  let stripsAtMs = 0;
  let arrived = !linked;
  let answer = null;

  const summary = h('div');
  const done = h('div', { role: 'status' });
  const list = h('div.stack');
  const more = h('div.more-row');
  const field = h('input', { type: 'search', 'data-search': true, 'aria-label': 'Search transactions and producers', placeholder: 'Search transactions and producers', value: search, maxlength: 200, spellcheck: 'false', autocomplete: 'off',
    oninput() {
      clearTimeout(typing);
      typing = setTimeout(() => {
        search = field.value.trim();
        setQuery({ search });
        refresh();
      }, 200);
    } });
  const orders = h('select', { 'aria-label': 'Order', onchange(event) {
    order = event.target.value;
    setQuery({ order });
    refresh();
  } }, ORDERS.map(([value, name]) => h('option', { value, selected: value === order }, name)));
  const tools = h('div.tools', {}, field, orders, barLegend());
  const element = h('div', {}, heading('Who blocks whom', { about: 'An open transaction holds back all messages behind its first one, until it ends. Readers at read_committed wait there.' }),
    done, summary, tools, list, more);

  async function abort(row) {
    const result = await askToAbort(row, answer.now_ms);
    if (result) {
      patch(done, h('div.done', {}, icon('ok'), h('span', {}, abortedText(result)), h('button.plain', { type: 'button', onclick: () => patch(done) }, 'Dismiss')));
      refresh();
    }
    // Its button may be gone with its transaction.
    if (!element.contains(document.activeElement)) (element.querySelector(`#txn-${CSS.escape(row.txn)} .warns`) ?? element.querySelector('h1')).focus({ preventScroll: true });
  }

  function unfold(txn) {
    if (!unfolded.delete(txn)) unfolded.add(txn);
    draw();
    loadStrips().then(draw, () => {});
  }

  /** The partitions of what is unfolded: those that aren't known, and all of them now and then. */
  async function loadStrips() {
    const rows = (answer?.rows ?? []).filter((row) => unfolded.has(row.txn));
    const wanted = new Map(rows.flatMap((row) => row.partitions).map((part) => [`${part.topic}/${part.partition}`, part]));
    for (const known of strips.keys()) if (!wanted.has(known)) strips.delete(known);
    const old = Date.now() - stripsAtMs >= STRIPS_EVERY_MS;
    if (old) stripsAtMs = Date.now();
    await Promise.all([...wanted].filter(([name]) => old || !strips.has(name)).map(async ([name, { topic, partition }]) => strips.set(name, await get('partition', { topic, partition }))));
  }

  function detail(row) {
    return [legend(), h('ul.strips', {}, row.partitions.map((part) => {
      const known = strips.get(`${part.topic}/${part.partition}`);
      const [from, to] = (known && heldPart(known.strip)) ?? [];
      return h('li', { key: `${part.topic}/${part.partition}` }, h('div.strip-head', {}, partitionLink(part.topic, part.partition),
        h('span.quiet.small', {}, `from ${part.first_position} on, ${count(part.held_back_messages, 'message')}, ${bytes(part.held_back_bytes)}`)),
      known ? strip(known.strip, { label: `${part.topic}, partition ${part.partition}`, from, to }) : h('div.strip-room'));
    })), h('p.quiet.small', {}, 'Each strip shows the end of its partition, from a little before what is held back.')];
  }

  function draw() {
    if (!answer) return;
    const { now_ms: now, rows, total } = answer;
    patch(list, rows.length ? rows.map((row) => blockerCard(row, {
      now,
      abort: () => abort(row),
      unfolded: unfolded.has(row.txn),
      unfold: () => unfold(row.txn),
      detail: unfolded.has(row.txn) ? detail(row) : null,
      marked: row.txn === linked,
    })) : search ? empty(`No open transaction matches “${search}”.`) : empty('No transaction is open.', 'Nothing is held back: readers at read_committed see all that is committed.'));
    tools.toggleAttribute('hidden', total === 0 && !search);
    patch(more, total > rows.length ? h('button', { type: 'button', onclick() {
      limit = Math.min(500, limit + AT_ONCE);
      refresh();
    } }, `Show more (${number(total - rows.length)})`) : null);
    if (!arrived && rows.length) {
      arrived = true;
      const card = document.getElementById(`txn-${linked}`);
      card?.scrollIntoView({ block: 'nearest' });
      if (!card) patch(done, h('div.done', {}, icon('info'), h('span', {}, `Transaction ${linked} is not open any more, or further down.`)));
    }
  }

  return {
    title: 'Who blocks whom',
    element,
    async update() {
      const sorted = order === 'held' ? { sort: 'held_back_messages', descending: 1 } : {};
      const [found, figures] = await Promise.all([get('blockers', { limit, search, ...sorted }), get('overview')]);
      noteFigures(figures);
      const before = answer?.total;
      answer = found;
      patch(summary, figures.open_transactions ? h('p.summary', {}, h('strong', {}, count(figures.open_transactions, 'transaction')),
        figures.open_transactions === 1 ? ' is open; ' : ' are open; ', h('strong', {}, count(figures.held_back_messages, 'message')), ` (${bytes(figures.held_back_bytes)}) `,
        figures.held_back_messages === 1 ? 'is held back. ' : 'are held back. ',
        figures.oldest_open_ms === null ? null : ['The oldest has been open for ', h('strong', {}, duration(figures.now_ms - figures.oldest_open_ms)), '.']) : null);
      draw();
      if (before !== undefined && before !== found.total) say(count(found.total, 'open transaction'));
      await loadStrips();
      draw();
    },
    close: () => clearTimeout(typing),
  };
}
