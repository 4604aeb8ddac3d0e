"use strict";
// Draws one report of xflow. `cytoscape` and `dagre` stand before this script in the page.
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const COLOURS = ["#e6842a", "#3f8fd6", "#c0507e", "#5aa02c", "#8a63d2", "#12a0a0", "#b08d1e", "#d64545"];
  // Regions are numbered, and coloured, in the order in which a reader meets them.
  const places = new Map();
  for (const side of report.drawing ? ["before", "after"] : []) {
    for (const { region } of report.drawing[side].nodes) {
      if (region >= 0 && !places.has(region)) places.set(region, places.size);
    }
  }
  const place = (region) => places.get(region) ?? region;
  const colour = (region) => COLOURS[place(region) % COLOURS.length];

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick") made.addEventListener("click", value);
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function shape(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function table(target, heads, rows) {
    if (!rows.length) {
      target.append(element("tr", {}, element("td", {}, "nothing")));
      return;
    }
    const cell = (tag, value) =>
      element(tag, typeof value === "number" ? { class: "number" } : {},
        value instanceof Node ? value : String(value));
    target.append(element("tr", {}, ...heads.map((head, k) => cell("th", head))));
    for (const row of rows) target.append(element("tr", {}, ...row.map((value) => cell("td", value))));
  }

  function seconds(value) {
    const [unit, scale] = Math.abs(value) >= 1 ? ["s", 1] : Math.abs(value) >= 1e-3 ? ["ms", 1e3] : ["µs", 1e6];
    return `${(value * scale).toFixed(2)} ${unit}`;
  }

  // A median and how far runs lie around it, in one unit.
  function spread(latency) {
    const [amount, unit] = seconds(latency.median).split(" ");
    const scale = { s: 1, ms: 1e3, µs: 1e6 }[unit];
    return `${amount} ± ${(latency.spread * scale).toFixed(2)} ${unit}`;
  }

  const amount = (value) => {
    if (typeof value !== "number") return String(value);
    if (report.objective === "latency") return seconds(value);
    return report.objective === "nodes" ? String(Math.round(value)) : `${Math.round(value).toLocaleString()} B`;
  };

  // Figures ----------------------------------------------------------------------------------

  // A drawing that shrinks where there is less room than it would like.
  const figure = (width, height) => shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });

  function drawLatency(target) {
    const sides = [["before", report.latency_before], ["after", report.latency_after]]
      .filter(([, latency]) => latency && latency.samples.length);
    if (!sides.length) {
      target.append(element("p", {}, "Nothing was timed."));
      return;
    }
    const all = sides.flatMap(([, latency]) => latency.samples).sort((a, b) => a - b);
    // A few samples during which the machine did something else would squeeze all others.
    const low = all[0], high = Math.max(all[Math.floor(all.length * 0.98)], low * 1.0001);
    const width = 420, height = 62, bins = 48;
    const x = (value) => 10 + (width - 20) * Math.min(1, (value - low) / (high - low));
    const svg = figure(width, sides.length * height + 22);
    sides.forEach(([name, latency], row) => {
      const counts = new Array(bins).fill(0);
      for (const sample of latency.samples) {
        counts[Math.min(bins - 1, Math.floor(bins * (sample - low) / (high - low)))] += 1;
      }
      const most = Math.max(...counts), base = (row + 1) * height;
      counts.forEach((count, bin) => {
        const tall = 38 * count / most;
        svg.append(shape("rect", { x: 10 + bin * (width - 20) / bins, y: base - tall,
          width: (width - 20) / bins - 1, height: tall, fill: css(`--${name}`), opacity: 0.75 }));
      });
      const at = x(latency.median);
      svg.append(shape("line", { x1: at, x2: at, y1: base - 42, y2: base, stroke: css("--ink") }));
      svg.append(shape("text", { x: 10, y: base - 47 },
        `${name}: median ${spread(latency)}, ${latency.runs} runs`));
      svg.append(shape("line", { x1: 10, x2: width - 10, y1: base, y2: base, class: "axis" }));
    });
    const foot = sides.length * height + 15;
    svg.append(shape("text", { x: 10, y: foot, class: "soft" }, seconds(low)));
    svg.append(shape("text", { x: width - 10, y: foot, "text-anchor": "end", class: "soft" }, seconds(high)));
    target.append(svg);
  }

  function drawOperators(target) {
    const before = report.before.operators, after = report.after.operators;
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    const rows = names.map((name) => [name, before[name] || 0, after[name] || 0])
      .sort((a, b) => Math.abs(b[1] - b[2]) - Math.abs(a[1] - a[2]) || b[1] - a[1]);
    const total = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);
    rows.unshift(["all", total(before), total(after)]);
    const made = element("table");
    table(made, ["operator", "before", "after"], rows);
    target.append(made);
  }

  const PHASES = { load: "read the model", import: "understand it", calibrate: "measure the machine",
    bodies: "graphs inside operators", search: "search", check: "compare the results", timing: "time both models",
    attribution: "what each rewrite gains", log: "write the report", write: "write the model" };

  function drawPhases(target) {
    const phases = Object.entries(report.phases), most = Math.max(...phases.map(([, s]) => s));
    const svg = figure(360, 18 * phases.length + 4);
    phases.forEach(([name, spent], row) => {
      svg.append(shape("text", { x: 0, y: 18 * row + 13 }, PHASES[name] || name));
      svg.append(shape("rect", { x: 150, y: 18 * row + 3, width: Math.max(1, 170 * spent / most), height: 12,
        fill: css("--after"), opacity: 0.75 }));
      svg.append(shape("text", { x: 156 + 170 * spent / most, y: 18 * row + 13, class: "soft" }, spent.toFixed(1)));
    });
    target.append(svg);
  }

  // Layout: of a rule's side as an SVG, and of a model for cytoscape ---------------------------

  function arrange(nodes, edges, separation) {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: separation, ranksep: separation * 1.6, ranker: nodes.length > 400 ? "longest-path" : "network-simplex" });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) graph.setNode(node.id, { width: node.width, height: node.height });
    for (const [from, to] of edges) if (from !== to) graph.setEdge(from, to);
    dagre.layout(graph);
    return graph;
  }

  function drawSide(side) {
    const nodes = side.nodes.map((node, k) => ({ id: String(k), label: node.label, leaf: node.leaf,
      width: Math.max(22, 6.6 * node.label.length + 12), height: 20 }));
    const edges = side.nodes.flatMap((node, k) => node.inputs.map((source) => [String(source), String(k)]));
    const graph = arrange(nodes, edges, 14), size = graph.graph();
    const svg = shape("svg", { width: size.width + 4, height: size.height + 4, role: "img" });
    for (const edge of graph.edges()) {
      const points = graph.edge(edge).points.map((p) => `${p.x + 2},${p.y + 2}`).join(" ");
      svg.append(shape("polyline", { points, class: "edge" }));
    }
    for (const node of nodes) {
      const at = graph.node(node.id);
      svg.append(shape("rect", { x: at.x - at.width / 2 + 2, y: at.y - 8, width: at.width, height: 20, rx: 4,
        class: node.leaf ? "leaf" : "box" }));
      svg.append(shape("text", { x: at.x + 2, y: at.y + 6, "text-anchor": "middle" }, node.label));
    }
    return svg;
  }

  // Blocks: operators whose names begin alike, or that stand one behind the other ---------------

  function blockNames(nodes) {
    const paths = nodes.map((node) => node.name.split(/[/.]/).filter(Boolean).slice(0, -1));
    for (let depth = 1; depth <= 6; depth += 1) {
      const keys = paths.map((path) => path.slice(0, depth).join("/"));
      const count = new Set(keys.filter(Boolean)).size;
      if (count >= 6 && keys.filter(Boolean).length > nodes.length / 2) return fill(keys, nodes);
    }
    return nodes.map((_, k) => `operators ${1 + 20 * Math.floor(k / 20)} to ${20 + 20 * Math.floor(k / 20)}`);
  }

  function fill(keys, nodes) {
    // What has no name belongs to what it reads.
    nodes.forEach((node, k) => {
      if (!keys[k] && node.inputs.length) keys[k] = keys[Math.max(...node.inputs)];
    });
    return keys;
  }

  class Model {
    constructor(name, nodes, onPick) {
      this.name = name;
      this.nodes = nodes;
      this.blocks = blockNames(nodes);
      this.folded = new Set();
      this.cy = cytoscape({
        container: byId(name), minZoom: 0.02, maxZoom: 3, hideEdgesOnViewport: nodes.length > 800,
        style: [
          { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: "data(height)",
            label: "data(label)", "text-valign": "center", "font-size": 11, "text-wrap": "wrap",
            "background-color": css("--paper"), "border-width": 1, "border-color": css("--soft"), color: css("--ink") } },
          { selector: "node[kind='end']", style: { "border-width": 0, "background-opacity": 0, color: css("--soft") } },
          { selector: "node[kind='block']", style: { "border-style": "dashed", "background-color": css("--line") } },
          { selector: "node[region >= 0]", style: { "background-color": "data(colour)", color: "#ffffff", "border-width": 0 } },
          { selector: "node.chosen", style: { "border-width": 3, "border-color": css("--ink") } },
          { selector: "node.hit", style: { "border-width": 4, "border-color": "#e8c500" } },
          { selector: "edge", style: { width: 1.2, "line-color": css("--soft"), "target-arrow-color": css("--soft"),
            "target-arrow-shape": "triangle", "arrow-scale": 0.7, "curve-style": "straight" } },
        ],
      });
      this.cy.on("tap", "node", (event) => {
        const data = event.target.data();
        if (data.kind === "block") {
          this.folded.delete(data.block);
          this.draw();
        } else onPick(data.region, this.nodes[data.number], this, data.number);
      });
    }

    foldUnchanged() {
      const changed = new Set(this.blocks.filter((_, k) => this.nodes[k].region >= 0));
      this.folded = new Set(this.blocks.filter((block) => !changed.has(block)));
      this.draw();
    }

    unfold() {
      this.folded.clear();
      this.draw();
    }

    idOf(number) {
      return this.folded.has(this.blocks[number]) && !this.isEnd(number) ? `b ${this.blocks[number]}` : `n ${number}`;
    }

    isEnd(number) {
      return ["input", "output"].includes(this.nodes[number].op);
    }

    draw() {
      const shown = new Map();
      const edges = new Map();
      this.nodes.forEach((node, number) => {
        const id = this.idOf(number);
        if (id[0] === "b") {
          const block = shown.get(id) || { id, kind: "block", block: this.blocks[number], count: 0, region: -1 };
          block.count += 1;
          block.label = `${block.block}\n${block.count} operator${block.count === 1 ? "" : "s"}`;
          shown.set(id, block);
        } else {
          const end = this.isEnd(number);
          shown.set(id, { id, kind: end ? "end" : "operator", number, region: node.region,
            colour: colour(node.region), label: end ? node.name : node.op });
        }
        for (const source of node.inputs) {
          const from = this.idOf(source);
          if (from !== id) edges.set(`${from}>${id}`, [from, id]);
        }
      });
      for (const node of shown.values()) {
        const lines = node.label.split("\n");
        node.width = Math.max(40, 7 * Math.max(...lines.map((line) => line.length)) + 12);
        node.height = 10 + 14 * lines.length;
      }
      const graph = arrange([...shown.values()], [...edges.values()], 18);
      this.cy.startBatch();
      this.cy.elements().remove();
      this.cy.add([...shown.values()].map((data) => {
        const { x, y } = graph.node(data.id);
        return { group: "nodes", data, position: { x, y } };
      }));
      this.cy.add([...edges.entries()].map(([id, [source, target]]) => ({ group: "edges", data: { id, source, target } })));
      this.cy.endBatch();
      this.fit();
    }

    fit() {
      // A long chain shown whole would be a hair: begin where something was changed, readable.
      this.cy.fit(undefined, 10);
      if (this.cy.zoom() < 0.45) {
        const changed = this.cy.nodes("[region >= 0]");
        this.cy.zoom(0.75);
        this.place(changed.nonempty() ? changed[0] : this.cy.nodes()[0], 0.25);
      }
    }

    // Nodes in the middle, at a share of the height from above, and no empty paper over the graph.
    place(nodes, share) {
      this.cy.center(nodes);
      const zoom = this.cy.zoom(), box = nodes.boundingBox();
      const wanted = share * this.cy.height() - zoom * (box.y1 + box.y2) / 2;
      const highest = 10 - zoom * this.cy.elements().boundingBox().y1;
      this.cy.pan({ x: this.cy.pan().x, y: Math.min(wanted, highest) });
    }

    show(nodes) {
      if (nodes.empty()) return;
      this.cy.fit(nodes, 60);
      this.cy.zoom(Math.min(this.cy.zoom(), 1.1));
      this.place(nodes, 0.5);
    }

    choose(region) {
      this.cy.nodes().removeClass("chosen");
      const nodes = this.cy.nodes(`[region = ${region}]`);
      nodes.addClass("chosen");
      return nodes;
    }

    find(text) {
      this.cy.nodes().removeClass("hit");
      if (!text) return [];
      return this.nodes.map((node, number) => [node, number])
        .filter(([node]) => `${node.name} ${node.op}`.toLowerCase().includes(text))
        .map(([, number]) => number);
    }

    mark(numbers) {
      let hits = this.cy.collection();
      for (const number of numbers) hits = hits.union(this.cy.getElementById(this.idOf(number)));
      hits.addClass("hit");
      return hits;
    }
  }

  // What a click shows -------------------------------------------------------------------------

  const rewrites = report.log ? report.log.rounds.flat() : [];
  const uses = Object.fromEntries(report.rules.map((use) => [use.name, use]));

  function showRule(name) {
    const rule = report.sides[name], detail = byId("detail"), use = uses[name];
    const box = element("div", { class: "rule" }, element("h2", {}, name));
    if (use) {
      const rough = { model: "", region: ", by measuring the regions alone", estimate: ", by estimate" }[use.gain_from];
      box.append(element("p", {}, `Applied ${use.count} time${use.count === 1 ? "" : "s"}; gain ${amount(use.gain)}${rough}.`));
    }
    if (rule) {
      const sides = element("div", { class: "sides" }, drawSide(rule.lhs), element("span", {}, "→"), drawSide(rule.rhs));
      box.append(sides);
      for (const [label, text] of rule.facts) box.append(element("p", {}, element("b", {}, `${label}: `), text));
      box.append(element("pre", {}, rule.text));
    }
    detail.querySelector(".rule")?.remove();
    detail.append(box);
  }

  function showRegion(region) {
    const detail = byId("detail");
    const own = report.drawing.regions[region];
    const gain = own.reduce((sum, number) => sum + (rewrites[number]?.gain || 0), 0);
    const heading = element("h2", {}, element("span", { class: "swatch", style: `background:${colour(region)}` }), `Region ${place(region) + 1}`);
    const steps = element("ol");
    for (const number of own) {
      const rules = (rewrites[number]?.steps || []).map((step) => step.rule);
      let start = 0;
      while (start < rules.length) { // a wave takes the same step at many places
        const rule = rules[start];
        const end = rules.findIndex((each, place) => place > start && each !== rule);
        const times = (end < 0 ? rules.length : end) - start;
        const link = element("button", { type: "button", class: "link", onclick: () => showRule(rule) }, rule);
        steps.append(element("li", {}, link, times > 1 ? `, ${times} times` : ""));
        start += times;
      }
    }
    detail.replaceChildren(heading, element("p", {}, `${own.length} rewrite${own.length === 1 ? "" : "s"}, ` +
      `which the search found to gain ${amount(gain)}. The steps, each by a rule:`), steps);
    const first = own.map((number) => rewrites[number]?.steps?.[0]).find(Boolean);
    if (first) showRule(first.rule);
  }

  function showOperator(node, model, number) {
    const detail = byId("detail");
    const block = model.blocks[number];
    detail.replaceChildren(element("h2", {}, node.op), element("p", {}, node.name || "made by a rewrite"), element("p", {}, node.shape),
      element("button", { type: "button", onclick: () => { model.folded.add(block); model.draw(); } }, `fold ${block}`));
  }

  // Blocks of the model: missed ones first, alike ones in one row ---------------------------------

  function drawBlocks(blocks) {
    const kinds = [...new Set(blocks.map((block) => block.kind))].sort();
    byId("recognised").textContent = kinds.length ? kinds.map((kind) => {
      const those = blocks.filter((block) => block.kind === kind);
      const plural = those.length === 1 ? kind : kind + (kind.endsWith("x") ? "es" : "s");
      return `${those.filter((block) => block.recognised).length} of ${those.length} ${plural}`;
    }).join(", ") + ": one operator or kernel each in the output." : "";
    const form = (each) => each.name === "its neighbours" ? "part of its neighbours" : each.by === "none" ? "several operators" : each.by === "fusion" ? `${each.name}, fused by the runtime` : each.name;
    const rows = new Map();
    for (const block of [...blocks].sort((a, b) => a.recognised - b.recognised)) {
      const row = [block.kind, block.name, form(block.before), form(block.after), block.reason];
      const key = JSON.stringify(row);
      if (!rows.has(key)) rows.set(key, [...row, []]);
      rows.get(key)[5].push(block.nodes);
    }
    const where = (blocks) => {
      const list = element("details", {}, element("summary", {}, `${blocks.length}`));
      for (const nodes of blocks) {
        const last = nodes[nodes.length - 1] || "";
        const show = () => {
          byId("search").value = last;
          byId("search").dispatchEvent(new Event("input"));
          byId("models").scrollIntoView();
        };
        list.append(element("div", {}, element("button", { type: "button", class: "link", title: nodes.join("\n"), onclick: show },
          nodes.length > 1 ? `${nodes[0]} … ${last}` : last || "without a name")));
      }
      return list;
    };
    table(byId("blocks"), ["kind", "operator", "before", "after", "why not one operator", "where"],
      [...rows.values()].map((row) => [...row.slice(0, 5), where(row[5])]));
  }

  // The page -----------------------------------------------------------------------------------

  for (const { sentence, rewrites } of report.bases ?? []) {
    byId("notes").append(element("li", {}, `${rewrites} rewrite${rewrites === 1 ? "" : "s"} by ${sentence}.`));
  }
  for (const { option, sentence, rewrites, rules } of report.assumed ?? []) {
    const count = rewrites === 1 ? "1 rewrite assumes" : `${rewrites} rewrites assume`;
    byId("notes").append(element("li", { title: rules.join("\n") }, `${count} that ${sentence} (--assume ${option}).`));
  }
  for (const text of report.messages) byId("notes").append(element("li", {}, text));
  for (const text of report.warnings) byId("notes").append(element("li", { class: "warning" }, `Warning: ${text}`));
  drawLatency(byId("latency"));
  drawOperators(byId("operators"));
  drawPhases(byId("phases"));
  const rough = { model: "timing the whole model", region: "timing its regions", estimate: "estimate" };
  const ruleRows = [...report.rules].sort((a, b) => b.gain - a.gain).map((use) => [
    element("button", { type: "button", class: "link", onclick: () => { showRule(use.name); byId("detail").scrollIntoView({ block: "nearest" }); } }, use.name),
    use.count, amount(use.gain), rough[use.gain_from]]);
  table(byId("rules"), ["rule", "times", "gain", "known from"], ruleRows);
  table(byId("missed"), ["what", "times", "why"], report.missed.map((item) => [item.what, item.count, item.why]));
  drawBlocks(report.blocks || []);

  if (!report.drawing) {
    byId("models").replaceChildren(element("p", {}, "The graphs are not drawn: there are too many operators, or the model could not be read."));
    document.documentElement.dataset.ready = "yes";
    return;
  }
  const models = [];
  const pick = (region, node, model, number) => {
    for (const each of models) {
      const nodes = each.choose(region);
      if (region >= 0 && each !== model) each.show(nodes);
    }
    if (region >= 0) showRegion(region);
    else showOperator(node, model, number);
  };
  for (const name of ["before", "after"]) models.push(new Model(name, report.drawing[name].nodes, pick));
  for (const model of models) model.nodes.length > 150 ? model.foldUnchanged() : model.draw();
  byId("fold").addEventListener("click", () => models.forEach((model) => model.foldUnchanged()));
  byId("unfold").addEventListener("click", () => models.forEach((model) => model.unfold()));
  byId("whole").addEventListener("click", () => models.forEach((model) => model.cy.fit(undefined, 10)));
  let turn = 0;
  const find = (next) => {
    const text = byId("search").value.trim().toLowerCase();
    turn = next ? turn + 1 : 0;
    const found = models.map((model) => model.find(text));
    models.forEach((model, k) => {
      model.mark(found[k]);
      if (found[k].length) model.show(model.cy.getElementById(model.idOf(found[k][turn % found[k].length])));
    });
    byId("hits").textContent = text ? `${found[0].length} before, ${found[1].length} after` : "";
  };
  byId("search").addEventListener("input", () => find(false));
  byId("search").addEventListener("keydown", (event) => { if (event.key === "Enter") find(true); });
  const count = report.drawing.regions.length;
  byId("legend").append(count ? `${count} rewritten region${count === 1 ? "" : "s"}, in the same colour before and after` : "nothing was rewritten");
  window.xflowModels = models;  // for whoever looks into the page from its console
  document.documentElement.dataset.ready = "yes";
})();
