// Shows the values of the point nearest to the pointer, counts the columns of wide tables that are out of
// view, and opens what is folded for printing.
"use strict";
(() => {
  const REACH = 44; // pixels from the pointer to a point, beyond which nothing is shown
  document.documentElement.classList.add("js");

  // Places and texts of a drawing's points, read when the pointer first comes.
  const read = (svg) => [...svg.querySelectorAll(".h, .bar")].map((e) => {
    const text = e.querySelector("title").textContent;
    const number = (name) => parseFloat(e.getAttribute(name));
    if (e.matches(".h")) return { x: number("cx"), y: number("cy"), text };
    return { x: number("x") + number("width") / 2, y: number("y"), text, bar: [number("x"), number("y"), number("width"), number("height")] };
  });
  const away = (p, x, y) => {
    if (p.bar && x >= p.bar[0] && x <= p.bar[0] + p.bar[2] && y >= p.bar[1] && y <= p.bar[1] + p.bar[3]) return 0;
    return Math.hypot(p.x - x, p.y - y);
  };

  for (const svg of document.querySelectorAll(".plot")) {
    let points, tip, ring;
    const hide = () => { if (tip) { tip.hidden = true; ring.remove(); } };
    const show = (event) => {
      points ??= read(svg);
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      let best, least = REACH * scale;
      for (const point of points) {
        const d = away(point, x, y);
        if (d < least) [best, least] = [point, d];
      }
      if (!best) return hide();
      if (!tip) {
        tip = document.createElement("div");
        tip.className = "tip";
        svg.parentElement.append(tip);
        ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
        ring.setAttribute("class", "here");
        ring.setAttribute("r", "7.5");
      }
      tip.textContent = best.text;
      tip.hidden = false;
      ring.setAttribute("cx", best.x);
      ring.setAttribute("cy", best.y);
      if (best.bar) ring.remove(); else svg.append(ring);
      const left = best.x / scale, top = box.top - svg.parentElement.getBoundingClientRect().top + best.y / scale;
      const room = svg.parentElement.clientWidth - tip.offsetWidth;
      const place = left + 14 <= room ? left + 14 : left - 14 - tip.offsetWidth;
      const above = top - tip.offsetHeight - 10;
      tip.style.left = Math.max(0, Math.min(place, room)) + "px";
      tip.style.top = (above >= 0 ? above : top + 14) + "px";
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", hide);
  }

  // Tables that are wider than the page say so, with the number of columns that are not in view.
  const hiddenColumns = (scroll) => {
    const edge = scroll.getBoundingClientRect().right + 1;
    return [...scroll.querySelectorAll("th")].filter((th) => th.getBoundingClientRect().right > edge).length;
  };
  const count = (scroll) => {
    const hint = scroll.previousElementSibling, columns = hiddenColumns(scroll);
    hint.hidden = scroll.scrollWidth <= scroll.clientWidth;
    hint.textContent = columns === 0 ? "← The first columns are to the left."
      : `${columns} more ${columns === 1 ? "column" : "columns"} to the right: scroll the table sideways →`;
  };
  const resized = new ResizeObserver((entries) => entries.forEach((entry) => count(entry.target)));
  for (const scroll of document.querySelectorAll(".scroll")) {
    const hint = document.createElement("p");
    hint.className = "wider";
    hint.hidden = true;
    scroll.before(hint);
    resized.observe(scroll);
    scroll.addEventListener("scroll", () => count(scroll), { passive: true });
  }

  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details:not([open])")) {
      folded.open = true;
      folded.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const opened of document.querySelectorAll("details[data-printed]")) {
      opened.open = false;
      delete opened.dataset.printed;
    }
  });
})();
