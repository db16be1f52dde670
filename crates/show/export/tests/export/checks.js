// Faults of the shown page: texts that overlap, leave their place, or lack contrast. Returns their list.
(() => {
  const MIN_CONTRAST = 4.5;
  const found = [];
  const shown = (e) => e.checkVisibility({ checkVisibilityCSS: true }) && e.getBoundingClientRect().width > 0;
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? `#${e.id}` : ""}.${e.getAttribute("class") ?? ""} "${e.textContent.trim().slice(0, 40)}"`;

  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
  for (const card of document.querySelectorAll(".card")) {
    if (shown(card) && !card.classList.contains("scroll") && card.scrollWidth > card.clientWidth + 1) found.push(`overflow: ${name(card)}`);
  }
  for (const e of document.querySelectorAll("th, td, dd, dt, button, .tag, figcaption, h1, h2, .shown, .state, .note, .range")) {
    if (!shown(e) || e.classList.contains("scroll")) continue;
    const style = getComputedStyle(e);
    if (style.textOverflow !== "ellipsis" && style.display !== "inline" && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) found.push(`overflow: ${name(e)} ${e.scrollWidth} > ${e.clientWidth}`);
  }

  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const apart = (elements) => {
    const boxes = elements.filter(shown).map((e) => [e, e.getBoundingClientRect()]);
    boxes.forEach(([a, box], i) => {
      for (const [b, other] of boxes.slice(i + 1)) if (meets(box, other)) found.push(`overlap: ${name(a)} and ${name(b)}`);
    });
  };
  for (const drawing of document.querySelectorAll(".chart svg")) {
    if (!shown(drawing)) continue;
    const texts = [...drawing.querySelectorAll("text")];
    apart(texts);
    const place = drawing.getBoundingClientRect();
    for (const text of texts) {
      const box = text.getBoundingClientRect();
      if (box.left < place.left - 1 || box.right > place.right + 1 || box.top < place.top - 1 || box.bottom > place.bottom + 1) found.push(`outside of its chart: ${name(text)}`);
    }
  }
  apart([...document.querySelectorAll("figcaption > *")]);
  apart([...document.querySelectorAll(".tools > *, .bar > *, .range button")]);
  apart([...document.querySelectorAll("#classes th, #rows td")].filter((e) => e.textContent));

  const parts = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const back = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const layer = parts(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(e) || !shown(e)) continue;
    seen.add(e);
    const style = getComputedStyle(e);
    const ink = parts(e instanceof SVGElement ? style.fill : style.color);
    for (let at = e; at; at = at.parentElement) ink[3] *= Number(getComputedStyle(at).opacity);
    const behind = back(e);
    const [a, b] = [light(over(ink, behind)), light(behind)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < MIN_CONTRAST) found.push(`contrast ${contrast.toFixed(1)}: ${name(e)}`);
  }
  return found;
})()
