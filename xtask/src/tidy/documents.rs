//! Reads documents: their lines without fenced blocks.

/// The lines of `text` that are in no fenced block, each with its number, from 1.
pub fn unfenced_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_blocks_are_left_out() {
        let lines: Vec<_> = unfenced_lines("a\n  ```sh\nb\n```\nc\n").collect();
        assert_eq!(lines, [(1, "a"), (5, "c")]);
    }
}
