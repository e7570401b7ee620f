//! A tree of rows as text: columns, bars, wrapped messages.
//!
//! Holds: the text says the same with and without colour, and no line ends in spaces.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;

use crate::{Row, age};

const HEADER: [&str; 5] = ["NAME", "READY", "REASON", "SINCE", "MESSAGE"];
const GAP: &str = "  ";
/// Messages get at least this much, even where the terminal is narrower: shorter lines cannot be read.
const NARROWEST_MESSAGE: usize = 30;

/// How a tree is written.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    pub color: bool,
    /// The columns of the terminal.
    pub width: usize,
}

/// A row on its way to text: the bars before its name, and those before the lines its message goes on with.
struct Line<'a> {
    row: &'a Row,
    name: String,
    since: String,
    bars_below: String,
}

/// The tree below its header, one line (or more, if the message is long) for each row.
pub fn render(root: &Row, now: Timestamp, options: &RenderOptions) -> String {
    let mut lines = Vec::new();
    lay_out(root, "", "", now, &mut lines);
    let widths = [
        widest(HEADER[0], lines.iter().map(|line| line.name.as_str())),
        widest(HEADER[1], lines.iter().map(|line| line.row.ready.as_deref().unwrap_or_default())),
        widest(HEADER[2], lines.iter().map(|line| line.row.reason.as_str())),
        widest(HEADER[3], lines.iter().map(|line| line.since.as_str())),
    ];
    let before_message = widths.iter().sum::<usize>() + GAP.len() * widths.len();
    let room = options.width.saturating_sub(before_message).max(NARROWEST_MESSAGE);
    let mut text = String::new();
    write_line(&mut text, &HEADER, &widths, None);
    for line in &lines {
        let mut message = line.row.message.lines().flat_map(|part| wrap(part, room));
        let first = message.next().unwrap_or_default();
        let ready = line.row.ready.as_deref().unwrap_or_default();
        let style = Some(style_of(ready)).filter(|_| options.color);
        write_line(&mut text, &[&line.name, ready, &line.row.reason, &line.since, &first], &widths, style);
        for more in message {
            write_line(&mut text, &[&line.bars_below, "", "", "", &more], &widths, None);
        }
    }
    text
}

/// `own` stands before the name of this row, `below` before everything under it.
fn lay_out<'a>(row: &'a Row, own: &str, below: &str, now: Timestamp, lines: &mut Vec<Line<'a>>) {
    let bars_below = if row.children.is_empty() { below.to_owned() } else { format!("{below}│") };
    let since = row.since.map(|since| age(since, now)).unwrap_or_default();
    lines.push(Line { row, name: format!("{own}{}", row.name), since, bars_below });
    for (index, child) in row.children.iter().enumerate() {
        let (branch, trunk) = if index + 1 == row.children.len() { ("└─", "  ") } else { ("├─", "│ ") };
        lay_out(child, &format!("{below}{branch}"), &format!("{below}{trunk}"), now, lines);
    }
}

fn widest<'a>(header: &str, cells: impl Iterator<Item = &'a str>) -> usize {
    cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(header.len())
}

/// One line of text; `style` colours what says the state, and not the name or the message, which are to be read and copied.
fn write_line(text: &mut String, cells: &[&str; 5], widths: &[usize; 4], style: Option<Style>) {
    let start = text.len();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let coloured = style.filter(|_| (column == 1 || column == 2) && !cell.is_empty());
        match coloured {
            Some(style) => text.push_str(&format!("{style}{cell}{style:#}")),
            None => text.push_str(cell),
        }
        let padding = width.saturating_sub(cell.chars().count()) + GAP.len();
        text.extend(std::iter::repeat_n(' ', padding));
    }
    text.push_str(cells[4]);
    let end = start + text[start..].trim_end().len();
    text.truncate(end);
    text.push('\n');
}

fn style_of(ready: &str) -> Style {
    let color = match ready {
        "True" => AnsiColor::Green,
        "False" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    };
    Style::new().fg_color(Some(color.into()))
}

/// The words of one line in lines of at most `room` characters; what follows a bullet is indented below it.
fn wrap(line: &str, room: usize) -> Vec<String> {
    let indent = if line.trim_start().starts_with("* ") { "  " } else { "" };
    let mut lines: Vec<String> = Vec::new();
    let mut current = String::new();
    for word in line.split_whitespace() {
        let full = !current.trim().is_empty() && current.chars().count() + 1 + word.chars().count() > room;
        if full {
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        } else if !current.trim().is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ready: &str, reason: &str, message: &str, children: Vec<Row>) -> Row {
        Row {
            name: name.into(),
            ready: Some(ready.into()),
            reason: reason.into(),
            since: Timestamp::from_second(0).ok(),
            message: message.into(),
            children,
        }
    }

    fn text(root: &Row, color: bool) -> String {
        render(root, Timestamp::from_second(5).unwrap(), &RenderOptions { color, width: 80 })
    }

    #[test]
    fn long_messages_go_on_beside_the_bars() {
        let deep = row("Machine/m", "Unknown", "", "one two three four five six seven eight nine ten eleven", vec![]);
        let inner = row("MachineDeployment/d", "False", "NotAvailable", "", vec![deep]);
        let last = row("MachineSet/s", "True", "", "", vec![]);
        let said = "* InfrastructureReady: the cloud said that no valid host was found\n* WorkersAvailable: no";
        let root = row("Cluster/c", "False", "NotAvailable", said, vec![inner, last]);
        let expected = "\
NAME                   READY    REASON        SINCE  MESSAGE
Cluster/c              False    NotAvailable  5s     * InfrastructureReady: the
│                                                      cloud said that no valid
│                                                      host was found
│                                                    * WorkersAvailable: no
├─MachineDeployment/d  False    NotAvailable  5s
│ └─Machine/m          Unknown                5s     one two three four five six
│                                                    seven eight nine ten eleven
└─MachineSet/s         True                   5s
";
        assert_eq!(text(&root, false), expected);
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let child = row("Machine/m", "False", "QuotaExceeded", "cores", vec![]);
        let root = row("Cluster/c", "True", "", "", vec![child]);
        let coloured = text(&root, true);
        assert!(coloured.contains("\u{1b}[32mTrue\u{1b}[0m"), "{coloured}");
        assert!(coloured.contains("\u{1b}[31mQuotaExceeded\u{1b}[0m"), "{coloured}");
        let plain =
            ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[0m"].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(plain, text(&root, false));
    }

    #[test]
    fn words_are_never_broken() {
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("a-word-longer-than-the-room and more", 10), ["a-word-longer-than-the-room", "and more"]);
        assert_eq!(wrap("* one two three", 8), ["* one", "  two", "  three"]);
    }
}
