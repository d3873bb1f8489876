// Code and tables that are wider than the page can be scrolled by keyboard.
document$.subscribe(() => {
  for (const region of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-typeset__table")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
});
