/** Something done again and again while the page can be seen: one at a time, rarer while it fails. */

const EVERY_MS = 2000;
const RAREST_MS = 30_000;

const REST = 5;

/**
 * Call `work` at once and then each 2 s, or, if it takes long, after a rest of five times that; after failures after 2, 4, 8 ... at most 30 s. Hidden pages do nothing.
 *
 * `told(error, retryAtMs)` hears of each end: the error and when it is tried again, or null. Returns
 * `{now(), stop()}`; `now` does it at once.
 */
export function poll(work, told = () => {}) {
  let timer = 0;
  let failures = 0;
  let running = false;
  let again = false;
  let stopped = false;

  async function once() {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    let error = null;
    const began = performance.now();
    try {
      await work();
      failures = 0;
    } catch (caught) {
      error = caught;
      failures += 1;
    }
    running = false;
    if (stopped) return;
    const rest = Math.max(EVERY_MS, REST * (performance.now() - began));
    const wait = Math.min(error ? EVERY_MS * 2 ** (failures - 1) : rest, RAREST_MS);
    told(error, Date.now() + wait);
    if (again) {
      again = false;
      once();
    } else if (!document.hidden) {
      timer = setTimeout(once, wait);
    }
  }

  function seen() {
    if (document.hidden) clearTimeout(timer);
    else once();
  }

  document.addEventListener('visibilitychange', seen);
  once();
  return {
    now: once,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    },
  };
}
