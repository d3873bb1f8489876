// Code and tables that are wider than the page can be scrolled by keyboard. So can a drawing with many arrows, which keeps
// a width at which its words can be read.
const MANY_LINES = 25;
document$.subscribe(() => {
  for (const source of document.querySelectorAll("article pre > code")) {
    if (source.textContent.startsWith("stateDiagram") && source.textContent.split("\n").length > MANY_LINES) {
      const frame = document.createElement("div");
      frame.className = "wide-drawing";
      frame.tabIndex = 0;
      source.parentNode.replaceWith(frame);
      frame.append(source.parentNode);
      const toMiddle = () => (frame.scrollLeft = (frame.scrollWidth - frame.clientWidth) / 2);
      new MutationObserver(toMiddle).observe(frame, { childList: true });
    }
  }
  for (const region of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .md-typeset__table")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
});
