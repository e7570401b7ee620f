//! Plain tables, aligned as kubectl aligns them.

const GAP: &str = "   ";

/// The rows below the header, each column as wide as its widest cell, without spaces at the ends of lines.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&header).chain(rows).collect();
    let columns = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let widest =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [row(&["etcd", "3.6.5", "running"]), row(&["kube-apiserver", "1.34.1", ""])];
        let expected = "\
NAME             VERSION   STATE
etcd             3.6.5     running
kube-apiserver   1.34.1
";
        assert_eq!(table(&["NAME", "VERSION", "STATE"], &rows), expected);
    }

    #[test]
    fn a_table_without_rows_is_its_header_and_short_rows_are_fine() {
        assert_eq!(table(&["NAME", "AGE"], &[]), "NAME   AGE\n");
        assert_eq!(table(&["NAME", "AGE"], &[row(&["a"])]), "NAME   AGE\na\n");
    }
}
