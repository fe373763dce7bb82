"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 50, PAPER = 660, CHUNK = data.chunk, NONE = "\u2013";
  const by = (id) => document.getElementById(id);
  const chunks = new Map();
  let rows = [], page = 0;

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  // -- what is there ------------------------------------------------------------------------------------------
  // An utterance is [id, reference, [[words, alignment, errors], ...], [text of each system], audio].
  const words = (text) => text === "" ? [] : text.split(" ");
  // Of Hebrew, Arabic and the like the first word stands on the right.
  const direction = (utt) => /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u.test(utt[1] || utt[2][0][0]) ? "rtl" : "ltr";
  const errorsOf = (utt, system) => utt[2][utt[3][system]][2];
  const change = (utt) => errorsOf(utt, after()) - errorsOf(utt, before());
  const before = () => Number(by("before").value);
  const after = () => Number(by("after").value);

  // By what utterances are sorted, least first.
  const orders = {
    fixed: (utt) => change(utt),
    broken: (utt) => -change(utt),
    before: (utt) => -errorsOf(utt, before()),
    after: (utt) => -errorsOf(utt, after()),
    longest: (utt) => -words(utt[1]).length,
    id: (utt) => utt[0],
  };
  const kinds = {
    all: () => true,
    changed: (utt) => utt[3][before()] !== utt[3][after()],
    fixed: (utt) => change(utt) < 0,
    broken: (utt) => change(utt) > 0,
  };

  // Of characters, which stand apart here, texts are searched without blanks.
  const searched = (text) => (data.unit === "character" ? text.replaceAll(" ", "") : text).toLowerCase();

  function select() {
    const wanted = searched(by("search").value.trim()), kind = kinds[by("kind").value];
    const texts = (utt) => searched([utt[0], utt[1], utt[2][utt[3][before()]][0], utt[2][utt[3][after()]][0]].join("\n"));
    rows = data.utts.map((_, place) => place).filter((place) => {
      const utt = data.utts[place];
      return kind(utt) && (wanted === "" || texts(utt).includes(wanted));
    });
    const keys = new Map(rows.map((place) => [place, orders[by("sort").value](data.utts[place])]));
    rows.sort((a, b) => keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : a - b);
    page = 0;
    show();
  }

  function show() {
    const list = by("list"), pages = Math.max(1, Math.ceil(rows.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    list.replaceChildren(...rows.slice(page * PAGE, (page + 1) * PAGE).map(item));
    by("count").textContent = `${rows.length} of ${data.utts.length} utterances`;
    by("page").textContent = `page ${page + 1} of ${pages}`;
    by("previous").disabled = page === 0;
    by("next").disabled = page === pages - 1;
  }

  // -- one utterance ------------------------------------------------------------------------------------------
  function item(place) {
    const utt = data.utts[place], made = element("li"), open = element("button", null, "open");
    const difference = change(utt), said = difference === 0 ? "as many errors" : difference < 0 ? `${-difference} fixed` : `${difference} broken`;
    open.type = "button";
    open.setAttribute("aria-expanded", "false");
    open.append(element("span", utt[0], "id"), element("span", `errors ${errorsOf(utt, before())} \u2192 ${errorsOf(utt, after())}`, "soft"),
      element("span", said, difference < 0 ? "helps" : difference > 0 ? "hurts" : "soft"), element("span", "list and scores", "soft"));
    const more = element("div");
    open.addEventListener("click", () => toggle(open, more, place));
    const scroll = element("div", null, "scroll");
    scroll.dir = direction(utt);
    scroll.append(...aligned(utt));
    made.append(open, scroll, more);
    return made;
  }

  function slots(text, ops, length) {
    // For each reference word what stands for it, and before each (and at the end) what is inserted.
    const hyp = words(text), right = [], inserted = Array.from({length: length + 1}, () => []);
    let next = 0;
    for (const op of ops) {
      if (op === "i") inserted[right.length].push(hyp[next++]);
      else right.push(op === "d" ? [NONE, "d"] : [hyp[next++], op === "s" ? "s" : ""]);
    }
    return {right, inserted};
  }

  function aligned(utt) {
    const ref = words(utt[1]), systems = [before(), after()];
    const parts = systems.map((system) => { const [text, ops] = utt[2][utt[3][system]]; return slots(text, ops, ref.length); });
    const lines = [[], [], []];
    for (let place = 0; place <= ref.length; place++) {
      const extra = Math.max(...parts.map((part) => part.inserted[place].length));
      for (let k = 0; k < extra; k++) {
        lines[0].push(["", ""]);
        parts.forEach((part, row) => lines[row + 1].push(k < part.inserted[place].length ? [part.inserted[place][k], "i"] : ["", ""]));
      }
      if (place === ref.length) break;
      lines[0].push([ref[place], ""]);
      const wrong = parts.map((part) => part.right[place][1] !== "");
      parts.forEach((part, row) => lines[row + 1].push([part.right[place][0], part.right[place][1] || (row === 1 && wrong[0] ? "fixed" : "")]));
    }
    const names = ["reference", ...systems.map((system) => data.systems[system])];
    return breaks(lines, lineWidth(names)).map(([begin, end]) => {
      const table = element("table", null, "align");
      names.forEach((name, row) => {
        const line = element("tr"), head = element("th", name);
        head.scope = "row";
        line.append(head, ...lines[row].slice(begin, end).map(([text, kind]) => element("td", text, kind)));
        table.append(line);
      });
      return table;
    });
  }

  // Characters that a line has room for beside these names: about 11 pixels each, those of names 8.
  let broad = by("list").clientWidth;
  const lineWidth = (names) => Math.min(88, (broad - 8 * Math.max(...names.map((name) => name.length))) / 11);

  function layOut(width) {
    if (width === broad) return;  // a phone's bars come and go
    broad = width;
    [...by("list").children].forEach((made, row) => made.children[1].replaceChildren(...aligned(data.utts[rows[page * PAGE + row]])));
  }

  function breaks(lines, most) {
    // Where long utterances go on in another table, so that they need not be scrolled.
    const found = [];
    let begin = 0, width = 0;
    lines[0].forEach((_, place) => {
      const wide = Math.max(...lines.map((line) => line[place][0].length)) + 1;
      if (width + wide > most && place > begin) { found.push([begin, place]); begin = place; width = 0; }
      width += wide;
    });
    return [...found, [begin, lines[0].length]];
  }

  function network(found, utt) {
    if (!found.c) return [];
    const scroll = element("div", null, "scroll"), table = element("table", null, "hyps network");
    scroll.dir = direction(utt);
    table.append(element("caption", "confusion network: what may stand at each place, with its posterior"));
    for (let rank = 0; rank < Math.max(...found.c.map((place) => place.length)); rank++) {
      const line = element("tr");
      for (const place of found.c) {
        const cell = element("td");
        if (rank < place.length) cell.append(element("span", place[rank][0] || NONE), " ", element("small", place[rank][1].toFixed(2), "soft"));
        line.append(cell);
      }
      table.append(line);
    }
    scroll.append(table);
    return [scroll];
  }

  async function toggle(open, more, place) {
    const shown = open.getAttribute("aria-expanded") === "true";
    open.setAttribute("aria-expanded", String(!shown));
    if (shown) { more.replaceChildren(); return; }
    const utt = data.utts[place], inside = element("div");  // what comes when it is closed again goes nowhere
    more.append(inside);
    if (utt[4]) {
      const audio = element("audio");
      audio.controls = true;
      audio.preload = "none";
      audio.src = utt[4];
      inside.append(audio);
    }
    try {
      const found = (await chunk(Math.floor(place / CHUNK)))[place % CHUNK];
      inside.append(hypotheses(found, utt), ...wordScores(found, utt), ...network(found, utt));
    } catch (error) {
      inside.append(element("p", `This browser cannot unpack the lists (${error.message}).`));
    }
  }

  function chunk(number) {
    if (!chunks.has(number)) {
      const bytes = Uint8Array.from(atob(by(`chunk-${number}`).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      chunks.set(number, new Response(stream).json());
    }
    return chunks.get(number);
  }

  function hypotheses(found, utt) {
    const scroll = element("div", null, "scroll"), table = element("table", null, "hyps"), head = element("tr");
    for (const name of ["#", "errors", "total", ...data.columns, "words"]) head.append(element("th", name, name === "words" ? "" : "n"));
    table.createTHead().append(head);
    const body = element("tbody");
    for (const hyp of found.h) {
      const line = element("tr");
      for (const value of [hyp.r, hyp.e, hyp.t, ...hyp.s]) line.append(element("td", value, "n"));
      const words = element("td", hyp.w);
      words.dir = "auto";
      line.append(words);
      body.append(line);
    }
    table.append(body);
    const note = `${found.h.length} of ${found.n} hypotheses, ${data.order} under ${data.chosen}; # is the place in the list as it came`;
    scroll.append(table, element("p", note, "soft"));
    return scroll;
  }

  function wordScores(found, utt) {
    return Object.entries(found.p || {}).map(([lm, texts]) => {
      const scroll = element("div", null, "scroll"), table = element("table", null, "hyps");
      scroll.dir = direction(utt);
      table.append(element("caption", `natural log-probability of each word, as ${lm} sees it`));
      for (const system of [before(), after()]) {
        const text = utt[3][system], tokens = element("tr"), values = element("tr");
        tokens.append(element("th", data.systems[system]), ...texts[text].map(([word]) => element("td", word || NONE)));
        values.append(element("th", ""), ...texts[text].map(([, value]) => element("td", value.toFixed(2), "n")));
        table.append(tokens, values);
      }
      scroll.append(table);
      return scroll;
    });
  }

  // -- controls -------------------------------------------------------------------------------------------------
  let waiting;
  by("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(select, 120); });
  for (const id of ["sort", "kind", "before", "after"]) by(id).addEventListener("change", select);
  const turn = (by) => { page += by; show(); document.getElementById("utterances").scrollIntoView(); };
  by("previous").addEventListener("click", () => turn(-1));
  by("next").addEventListener("click", () => turn(1));
  by("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const buttons = [...document.querySelectorAll(".open")], at = buttons.indexOf(document.activeElement);
    if (event.key === "/") { event.preventDefault(); by("search").focus(); }
    else if (event.key === "j" && buttons.length) buttons[Math.min(at + 1, buttons.length - 1)].focus();
    else if (event.key === "k" && at > 0) buttons[at - 1].focus();
    else if (event.key === "n" && !by("next").disabled) turn(1);
    else if (event.key === "p" && !by("previous").disabled) turn(-1);
  });
  window.addEventListener("resize", () => layOut(by("list").clientWidth));
  window.addEventListener("beforeprint", () => layOut(Math.min(broad, PAPER)));
  window.addEventListener("afterprint", () => layOut(by("list").clientWidth));
  select();
  document.documentElement.dataset.ready = "yes";
})();
