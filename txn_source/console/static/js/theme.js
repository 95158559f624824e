// The theme that was chosen, set before the first paint; none: as the system has it.
'use strict';
try {
  const theme = localStorage.getItem('txnlog.theme');
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing shows the system's theme.
}
