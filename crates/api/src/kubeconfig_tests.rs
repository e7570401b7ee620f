use super::*;

const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";

fn good() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "clusters": [{"name": "demo", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": PEM}}],
        "users": [{"name": "admin", "user": {"client-certificate-data": PEM, "client-key-data": PEM}}],
        "contexts": [{"name": "admin@demo", "context": {"cluster": "demo", "user": "admin", "namespace": "x"}}],
        "current-context": "admin@demo",
    })
}

fn with(pointer: &str, value: Value) -> String {
    let mut config = good();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap()[field] = value;
    config.to_string()
}

const CLUSTER: &str = "/clusters/0/cluster";
const USER: &str = "/users/0/user";

#[test]
fn what_a_kubeconfig_contains_itself_is_accepted() {
    let table = [
        good().to_string(),
        with(&format!("{USER}/token"), json!("abc.def")),
        with(&format!("{CLUSTER}/insecure-skip-tls-verify"), json!(false)),
        with(&format!("{CLUSTER}/tls-server-name"), json!("kubernetes")),
        with(&format!("{CLUSTER}/server"), json!("https://[::1]:6443/k8s/clusters/c-1")),
        with(&format!("{USER}/username"), json!("")),
        // What nobody refers to does not count.
        with("/users", json!([good()["users"][0], {"name": "other", "user": {"exec": {"command": "sh"}}}])),
    ];
    for text in &table {
        let read = InlineKubeconfig::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(InlineKubeconfig::parse(&read.to_json()).unwrap(), read, "what is rebuilt means the same");
        assert!(!format!("{read:?}").contains(PEM));
    }
}

#[test]
fn what_runs_programs_reads_files_or_leads_elsewhere_is_refused_by_name() {
    let table = [
        (format!("{USER}/exec"), json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh"})),
        (format!("{USER}/auth-provider"), json!({"name": "gcp"})),
        (format!("{USER}/client-certificate"), json!("/etc/hostname")),
        (format!("{USER}/client-key"), json!("/etc/hostname")),
        (format!("{USER}/tokenFile"), json!("/var/run/secrets/kubernetes.io/serviceaccount/token")),
        (format!("{USER}/username"), json!("admin")),
        (format!("{USER}/password"), json!("hunter2")),
        (format!("{USER}/as"), json!("system:admin")),
        (format!("{USER}/as-groups"), json!(["system:masters"])),
        (format!("{USER}/act-as"), json!("root")),
        (format!("{CLUSTER}/certificate-authority"), json!("/etc/ssl/ca.pem")),
        (format!("{CLUSTER}/insecure-skip-tls-verify"), json!(true)),
        (format!("{CLUSTER}/insecure-skip-tls-verify"), json!("true")),
        (format!("{CLUSTER}/proxy-url"), json!("http://10.0.0.1:3128")),
        (format!("{CLUSTER}/something-new"), json!("x")),
    ];
    for (pointer, value) in table {
        let error = InlineKubeconfig::parse(&with(&pointer, value)).unwrap_err();
        let field = pointer.rsplit('/').next().unwrap();
        let place = if pointer.starts_with(USER) { "users[admin].user" } else { "clusters[demo].cluster" };
        assert_eq!(error, KubeconfigError::Refused(format!("{place}.{field}")), "{pointer}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

#[test]
fn what_is_missing_or_malformed_is_named() {
    let table = [
        (format!("{CLUSTER}/server"), json!("http://10.0.0.1"), "clusters[demo].cluster.server is not an https URL"),
        (format!("{CLUSTER}/server"), json!("https://a@b"), "not of the form"),
        (format!("{CLUSTER}/server"), json!("https://b/?x"), "not of the form"),
        (format!("{CLUSTER}/server"), json!("https://b\r\nHost: c"), "not of the form"),
        (format!("{CLUSTER}/server"), json!("https://"), "not of the form"),
        (format!("{CLUSTER}/server"), Value::Null, "it has no clusters[demo].cluster.server"),
        (
            format!("{CLUSTER}/certificate-authority-data"),
            Value::Null,
            "no clusters[demo].cluster.certificate-authority-data",
        ),
        (format!("{CLUSTER}/certificate-authority-data"), json!("!"), "not valid base64"),
        (format!("{CLUSTER}/certificate-authority-data"), json!("AAAA"), "not PEM"),
        (format!("{CLUSTER}/certificate-authority-data"), json!(7), "not a string"),
        (format!("{USER}/client-key-data"), Value::Null, "it has no users[admin].user.client-key-data"),
        (format!("{USER}/client-certificate-data"), json!(""), "it has no users[admin].user.client-certificate-data"),
        (format!("{USER}/token"), json!("a\nb"), "control characters"),
        ("/current-context".to_owned(), Value::Null, "it has no current-context"),
        ("/current-context".to_owned(), json!("x"), "it has no contexts named x"),
        ("/clusters".to_owned(), json!({}), "it has no clusters named demo"),
        ("/users".to_owned(), json!([{"name": "admin"}]), "it has no users named admin"),
    ];
    for (pointer, value, expected) in table {
        let error = InlineKubeconfig::parse(&with(&pointer, value)).unwrap_err().to_string();
        assert!(error.contains(expected), "{pointer}: {error}");
    }
}

#[test]
fn nothing_larger_than_a_kubeconfig_is_read() {
    let large = with("/preferences", json!({"x": "y".repeat(LARGEST)}));
    assert!(matches!(InlineKubeconfig::parse(&large), Err(KubeconfigError::TooLarge(_))));
    for text in ["", "[]", "a: [", "null", "clusters: 7\ncurrent-context: x", "&a [*a]"] {
        assert!(InlineKubeconfig::parse(text).is_err(), "{text}");
    }
}
