//! A plan as SVG: one picture of the network for each member, with its trees.

use super::plan::Plan;
use super::topology::Network;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Colours of the trees: those of the charts, distinguishable with any colour vision.
const COLORS: [&str; 4] = ["#0072b2", "#d55e00", "#008a65", "#b25d92"];
const INK: &str = "#333333";
const IDLE: &str = "#d0d0d0";
/// Pixels between two layers, between two nodes, and around a picture.
const LAYER: usize = 90;
const COLUMN: usize = 110;
const MARGIN: usize = 24;
const BOX: (usize, usize) = (92, 26);
/// Pixels above each picture for its title, and above all for the legend.
const TITLE: usize = 34;
const LEGEND: usize = 78;
const WIDTH_MIN: usize = 640;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A name that fits into its box; the title of the box has it in full.
fn short(name: &str) -> String {
    const CHARS_MAX: usize = 13;
    match name.char_indices().nth(CHARS_MAX) {
        Some(_) => format!("{}…", name.chars().take(CHARS_MAX - 1).collect::<String>()),
        None => name.to_owned(),
    }
}

/// The middle of each node's box in a picture, and the size of the picture.
fn places(network: &Network) -> (Vec<(usize, usize)>, usize, usize) {
    let hosts: Vec<usize> = (0..network.nodes.len()).filter(|n| network.nodes[*n].host).collect();
    let mut rank = vec![u32::MAX; network.nodes.len()];
    for host in hosts {
        for (node, hops) in network.distances(host).into_iter().enumerate() {
            let hops = if network.nodes[node].host { Some(0) } else { hops };
            rank[node] = rank[node].min(hops.unwrap_or(u32::MAX));
        }
    }
    let mut layers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (node, rank) in rank.iter().enumerate() {
        layers.entry(*rank).or_default().push(node);
    }
    let widest = layers.values().map(Vec::len).max().unwrap_or(1);
    let width = (widest * COLUMN).max(WIDTH_MIN - 2 * MARGIN);
    let mut places = vec![(0, 0); network.nodes.len()];
    let mut y = BOX.1 / 2;
    for nodes in layers.values().rev() {
        for (number, node) in nodes.iter().enumerate() {
            places[*node] = (MARGIN + width * (2 * number + 1) / (2 * nodes.len()), y);
        }
        y += LAYER;
    }
    (places, width + 2 * MARGIN, y - LAYER + BOX.1 / 2)
}

/// Draws the plan. The text is a complete SVG document.
pub fn draw(network: &Network, plan: &Plan) -> String {
    let (places, width, height) = places(network);
    let total = LEGEND + plan.senders.len() * (TITLE + height + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"{INK}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    legend(&mut svg, network, plan);
    for (number, sender) in plan.senders.iter().enumerate() {
        let top = LEGEND + number * (TITLE + height + MARGIN);
        let name = escaped(&network.nodes[sender.sender].name);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\" font-weight=\"bold\">Frames of {name}</text>",
            top + 14
        );
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", top + TITLE);
        picture(&mut svg, network, plan, number, &places);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, network: &Network, plan: &Plan) {
    let risk = plan
        .risk
        .once_in_years
        .map_or("no failure that the file names silences a member".to_owned(), |years| {
            format!("a living member is silenced once in {years:.1} years")
        });
    let head = format!("{}: {risk}", network.name);
    let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{}</text>", escaped(&head));
    let mut x = MARGIN;
    for (number, color) in COLORS.iter().take(network.wanted.trees).enumerate() {
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"46\" x2=\"{}\" y2=\"46\" stroke=\"{color}\" stroke-width=\"3\"/><text x=\"{}\" \
             y=\"50\">tree {}</text>",
            x + 28,
            x + 34,
            number + 1
        );
        x += 90;
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" y1=\"46\" x2=\"{}\" y2=\"46\" stroke=\"{IDLE}\" stroke-width=\"1.5\"/><text x=\"{}\" \
         y=\"50\">not used</text>",
        x + 28,
        x + 34
    );
}

fn picture(svg: &mut String, network: &Network, plan: &Plan, number: usize, places: &[(usize, usize)]) {
    let sender = &plan.senders[number];
    let line = |svg: &mut String, a: usize, b: usize, style: &str| {
        let ((x1, y1), (x2, y2)) = (places[a], places[b]);
        let _ = writeln!(svg, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>");
    };
    for link in &network.links {
        line(svg, link.ends[0], link.ends[1], &format!("stroke=\"{IDLE}\" stroke-width=\"1.5\""));
    }
    for (tree, color) in sender.trees.iter().zip(COLORS) {
        for (from, to) in tree.edges() {
            line(svg, from, to, &format!("stroke=\"{color}\" stroke-width=\"3\""));
        }
    }
    for (node, (x, y)) in places.iter().enumerate() {
        let of_tree = sender.trees.iter().position(|tree| tree.nodes().any(|n| n == node));
        let host = network.nodes[node].host;
        let member = network.wanted.members.contains(&node);
        let (stroke, width) = match of_tree {
            Some(tree) if !host => (COLORS[tree.min(COLORS.len() - 1)], 2),
            _ if node == sender.sender => (INK, 3),
            _ if member => (INK, 1),
            _ => (IDLE, 1),
        };
        let fill = if node == sender.sender { "#eeeeee" } else { "#ffffff" };
        let radius = if host { BOX.1 / 2 } else { 3 };
        let name = &network.nodes[node].name;
        let _ = writeln!(
            svg,
            "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\" fill=\"{fill}\" \
             stroke=\"{stroke}\" stroke-width=\"{width}\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text></g>",
            escaped(name),
            x - BOX.0 / 2,
            y - BOX.1 / 2,
            BOX.0,
            BOX.1,
            y + 4,
            escaped(&short(name))
        );
    }
}
