//! Variables whose names no shell could write (`spec.nodeName`, `1ST`): the shells on the way to a program drop them.
//!
//! Flows: such a variable travels under a plain name; `env -S`, the last step before the program, reads its value from there, gives it its own name
//! and drops the plain one. Holds: no value is ever in the arguments of a process, which everybody on the machine can read.

use std::collections::BTreeMap;
use std::path::PathBuf;

const PREFIX: &str = "HANGAR_VARIABLE_";

/// What `env` has to know for this; older ones and busybox's do not.
pub const NEEDS: &str = "the program `env` with the option -S (GNU coreutils 8.30 or later)";

/// Variables as they travel, and the words that go before the program; no words if all names are plain.
pub struct Carried {
    pub env: BTreeMap<String, String>,
    words: Vec<String>,
}

impl Carried {
    pub fn new(env: BTreeMap<String, String>) -> Self {
        let (mut env, odd): (BTreeMap<_, _>, BTreeMap<_, _>) = env.into_iter().partition(|(name, _)| is_plain(name));
        if odd.is_empty() {
            return Self { env, words: vec![] };
        }
        let (mut unset, mut set) = (String::new(), String::new());
        for (index, (name, value)) in odd.into_iter().enumerate() {
            let travels_as = format!("{PREFIX}{index}");
            unset.push_str(&format!("-u {travels_as} "));
            set.push_str(&format!("{}\"=${{{travels_as}}}\" ", quoted(&name)));
            env.insert(travels_as, value);
        }
        // Values are read when the text is split, which is before anything is unset.
        Self { env, words: vec!["env".to_owned(), format!("-S{unset}{set}")] }
    }

    pub fn is_needed(&self) -> bool {
        !self.words.is_empty()
    }

    /// The command that gives a program its variables under their own names.
    pub fn command(&self, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
        let Some((env, words)) = self.words.split_first() else { return (program, args) };
        let words = words.iter().cloned().chain([program.display().to_string()]).chain(args);
        (PathBuf::from(env), words.collect())
    }
}

fn is_plain(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name may hold everything that can be printed but `=`.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\\', r"\\").replace('\'', r"\'"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn plain_names_need_nothing() {
        let env = variables(&[("A", "1"), ("b_2", "x y")]);
        let carried = Carried::new(env.clone());
        assert_eq!((carried.is_needed(), &carried.env), (false, &env));
        assert_eq!(carried.command("p".into(), vec!["a".into()]), (PathBuf::from("p"), vec!["a".to_owned()]));
    }

    /// Through a shell, as on the way into a container.
    #[test]
    fn every_variable_arrives_whatever_its_name_and_value_and_none_in_arguments() {
        let env = variables(&[
            ("PLAIN", "stays"),
            ("my.password", "two words, 'quotes', \"more\", $HOME ${PLAIN} \\n \\ # %"),
            ("1ST", "line one\nline two"),
            ("a-b", ""),
            ("it's \\ $odd #\"", "s3cr3t"),
        ]);
        let carried = Carried::new(env.clone());
        let (program, args) = carried.command("env".into(), vec!["-0".into()]);
        for value in env.values().filter(|value| !value.is_empty()) {
            assert!(!args.iter().any(|word| word.contains(value.as_str())), "{args:?}");
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"exec "$@""#, "sh"]).arg(program).args(args);
        let output = command.env_clear().env("PATH", "/usr/bin:/bin").envs(&carried.env).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut arrived: BTreeMap<String, String> = text
            .split_terminator('\0')
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        // What a shell adds.
        arrived.retain(|name, _| !["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
        assert_eq!(arrived, env);
    }
}
