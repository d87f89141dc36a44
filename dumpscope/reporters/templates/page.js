/* Colours, charts, and the start of it all. */

function startTheme() {
  const select = document.getElementById("theme");
  let kept = "auto";
  try {
    kept = localStorage.getItem("dumpscope-theme") || "auto";
  } catch (error) {
    /* a page out of a mail may not keep anything */
  }
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  if (["auto", "light", "dark"].includes(kept)) select.value = kept;
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    try {
      localStorage.setItem("dumpscope-theme", select.value);
    } catch (error) {
      /* then it holds until the page is closed */
    }
  });
  select.closest("label").hidden = false;
}

/* One stop of the Tab key per chart; the arrow keys go from mark to mark. */
function startChart(chart, marks, act) {
  if (!marks.length) return;
  marks[0].setAttribute("tabindex", "0");
  const centre = (mark) => {
    const box = mark.getBBox();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  const nearest = (from, along, sign) => {
    const here = centre(from);
    let best = null, least = Infinity;
    for (const mark of marks) {
      const there = centre(mark);
      const ahead = (there[along] - here[along]) * sign;
      const aside = Math.abs(there[1 - along] - here[1 - along]);
      if (ahead <= 2 || (along === 0 && aside > 8)) continue;
      if (ahead + 3 * aside < least) {
        least = ahead + 3 * aside;
        best = mark;
      }
    }
    return best;
  };
  const focus = (from, to) => {
    if (!to) return;
    from.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  };
  const moves = {
    ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 1], ArrowUp: [1, -1],
  };
  chart.addEventListener("keydown", (event) => {
    const mark = marks.find((other) => other === document.activeElement);
    if (!mark) return;
    if (event.key in moves) focus(mark, nearest(mark, ...moves[event.key]));
    else if (event.key === "Home") focus(mark, marks[0]);
    else if (event.key === "End") focus(mark, marks[marks.length - 1]);
    else if (event.key === "Enter" || event.key === " ") act(mark);
    else return;
    event.preventDefault();
  });
  chart.addEventListener("click", (event) => {
    const mark = marks.find((other) => other.contains(event.target));
    if (mark) act(mark);
  });
}

function startCharts(findings) {
  const heat = document.querySelector("svg.heat");
  if (heat) {
    startChart(heat, [...heat.querySelectorAll(".cell")], (cell) => {
      findings.chooseAll({ step: cell.dataset.step, device: cell.dataset.device });
      findings.section.scrollIntoView();
      findings.search.focus({ preventScroll: true });
    });
  }
  const lanes = document.querySelector("svg.lanes");
  if (lanes) {
    startChart(lanes, [...lanes.querySelectorAll(".mark")], (mark) => {
      findings.goTo(Number(mark.dataset.rank));
    });
  }
}

async function start() {
  startTheme();
  const unpacked = await unpackRows();
  const listings = [];
  for (const section of document.querySelectorAll("section.listing")) {
    const name = section.dataset.table;
    const table = section.querySelector("table");
    if (!table) continue;
    const rows = unpacked.get(name) || readRows(name, table);
    const tensors = name === "findings" ? unpacked.get("tensors") : null;
    listings.push(new Listing(section, rows, tensors));
    const first = section.querySelector(".only-first");
    if (first) first.hidden = rows.whole;
    const missing = META.tables[name].total - rows.count;
    if (missing > 0 && rows.whole) {
      const note = section.querySelector(".left-out");
      note.textContent = word("left_out", { count: grouped(missing) });
      note.hidden = false;
    }
  }
  const findings = listings.find((listing) => listing.name === "findings");
  if (findings) {
    startCharts(findings);
    const asked = /^#finding-(\d+)$/.exec(location.hash);
    if (asked) findings.goTo(Number(asked[1]));
  }
  addEventListener("beforeprint", () => listings.forEach((one) => one.prepareForPaper(true)));
  addEventListener("afterprint", () => listings.forEach((one) => one.prepareForPaper(false)));
  document.documentElement.dataset.ready = "yes";
}

start();
