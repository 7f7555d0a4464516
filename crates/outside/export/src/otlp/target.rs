//! Where and how a signal is sent, by the variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_*`, specification "OpenTelemetry
//! Protocol Exporter").

use anyhow::{Context, Result, bail};
use percent_encoding::percent_decode_str;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// Where a signal goes if no variable says it.
const USUAL: &str = "http://localhost:4318";
/// How long one request may take if no variable says it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how one signal is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is sent.
    pub signal: Signal,
    /// The whole address, which may have a password.
    pub url: String,
    /// The address as the user is shown it.
    pub shown: String,
    /// Headers beside the usual ones.
    pub headers: Vec<(String, String)>,
    /// How long a request may take; `None` if that has no limit.
    pub timeout: Option<Duration>,
    /// Whether what is sent is packed with gzip.
    pub is_packed: bool,
    /// A file of certificates to be trusted, in place of the usual ones.
    pub certificates: Option<PathBuf>,
    /// Files with the certificate that a receiver is shown, and with its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The figures.
    Metrics,
    /// The findings.
    Logs,
    /// CPU time lost, by line of code. The format is not settled yet.
    Profiles,
}

impl Signal {
    /// How variables call it.
    const fn in_variables(self) -> &'static str {
        match self {
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
            Self::Profiles => "PROFILES",
        }
    }

    /// The end of the address.
    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "v1/metrics",
            Self::Logs => "v1/logs",
            Self::Profiles => "v1development/profiles",
        }
    }

    /// What its queue is called.
    pub const fn sink(self) -> &'static str {
        match self {
            Self::Metrics => "otlp-metrics",
            Self::Logs => "otlp-logs",
            Self::Profiles => "otlp-profiles",
        }
    }
}

impl Target {
    /// What the variables say of a signal; `variable` looks one up.
    ///
    /// # Errors
    /// If a variable can't be followed.
    pub fn of(signal: Signal, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let (upper, path) = (signal.in_variables(), signal.path());
        let of_signal = |name: &str| {
            let own = variable(&format!("OTEL_EXPORTER_OTLP_{upper}_{name}"));
            own.filter(|value| !value.is_empty())
        };
        let common = |name: &str| {
            let common = variable(&format!("OTEL_EXPORTER_OTLP_{name}"));
            common.filter(|value| !value.is_empty())
        };
        let either = |name: &str| of_signal(name).or_else(|| common(name));
        if let Some(other) = either("PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
            bail!("OTEL_EXPORTER_OTLP_PROTOCOL is {other}: only http/protobuf is spoken here");
        }
        let url = of_signal("ENDPOINT").unwrap_or_else(|| {
            let base = common("ENDPOINT").unwrap_or_else(|| USUAL.into());
            format!("{}/{path}", base.trim_end_matches('/'))
        });
        let Some(shown) = shown(&url) else {
            bail!("{} is no address of HTTP", without_secrets(&url));
        };
        let timeout = match either("TIMEOUT") {
            Some(text) => {
                let milliseconds = text.parse();
                let wrong = || format!("OTEL_EXPORTER_OTLP_TIMEOUT is {text}: no milliseconds");
                let milliseconds = milliseconds.with_context(wrong)?;
                // "Common Configuration", section "Timeout": zero is no limit.
                (milliseconds > 0).then(|| Duration::from_millis(milliseconds))
            }
            None => Some(TIMEOUT),
        };
        let is_packed = match either("COMPRESSION").as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => {
                bail!(
                    "OTEL_EXPORTER_OTLP_COMPRESSION is {other}: only gzip and none are known here"
                )
            }
        };
        let own = match (either("CLIENT_CERTIFICATE"), either("CLIENT_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => bail!(
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY go together"
            ),
        };
        Ok(Self {
            signal,
            url,
            shown,
            headers: headers(&either("HEADERS").unwrap_or_default())?,
            timeout,
            is_packed,
            own,
            certificates: either("CERTIFICATE").map(PathBuf::from),
        })
    }

    /// What sends requests to it.
    ///
    /// # Errors
    /// If a certificate or a key can't be read.
    pub fn agent(&self) -> Result<ureq::Agent> {
        let mut tls = TlsConfig::builder();
        if let Some(file) = &self.certificates {
            tls = tls.root_certs(RootCerts::from(certificates(file)?));
        }
        if let Some((certificate, key)) = &self.own {
            let own = ClientCert::new_with_certs(&certificates(certificate)?, private_key(key)?);
            tls = tls.client_cert(Some(own));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(self.timeout)
            .http_status_as_error(false)
            // A request that is led elsewhere would arrive there without its body.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls.build());
        Ok(config.build().into())
    }
}

/// An address of HTTP without a name, a password and a query, which may have a key; `None` if it is none.
fn shown(url: &str) -> Option<String> {
    let address = url.parse::<ureq::http::Uri>().ok()?;
    let scheme = address
        .scheme_str()
        .filter(|s| ["http", "https"].contains(s))?;
    let host = address.host().filter(|host| !host.is_empty())?;
    let authority = address.authority()?.as_str();
    // In `user:pass/word@host` the host is `user`, and what is no port belongs to the password.
    let port = match authority.rsplit_once(host)?.1 {
        "" | ":" => String::new(),
        _ => format!(":{}", address.port_u16()?),
    };
    Some(format!("{scheme}://{host}{port}{}", address.path()))
}

/// What is no address, without what may have been meant as a name, a password or a query.
fn without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let rest = if scheme.is_empty() { text } else { rest };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let between = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{between}{rest}")
}

/// `key=value,key=value`, the values percent-encoded.
fn headers(text: &str) -> Result<Vec<(String, String)>> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let parsed = parts.map(|part| {
        let (key, value) = part.split_once('=').context("a header has no =")?;
        let value = percent_decode_str(value.trim()).decode_utf8()?;
        let key = key.trim();
        HeaderName::try_from(key).context("a header's name has a character that HTTP forbids")?;
        HeaderValue::try_from(&*value)
            .context("a header's value has a character that HTTP forbids")?;
        Ok((key.to_owned(), value.into_owned()))
    });
    // Not the value, which may be secret.
    parsed
        .collect::<Result<_>>()
        .context("OTEL_EXPORTER_OTLP_HEADERS can't be read")
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>> {
    let wrong = || format!("cannot read the certificates in {}", file.display());
    let text = std::fs::read(file).with_context(wrong)?;
    let mut all = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.with_context(wrong)? {
            all.push(certificate);
        }
    }
    if all.is_empty() {
        bail!("there are no certificates in {}", file.display());
    }
    Ok(all)
}

fn private_key(file: &Path) -> Result<PrivateKey<'static>> {
    let wrong = || format!("cannot read the key in {}", file.display());
    let text = std::fs::read(file).with_context(wrong)?;
    PrivateKey::from_pem(&text).with_context(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(signal: Signal, all: &[(&str, &str)]) -> Result<Target> {
        let variable = |name: &str| {
            let found = all.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Target::of(signal, &variable)
    }

    #[test]
    fn what_is_no_address_is_refused_before_anything_is_sent() {
        for (url, is_one) in [
            ("http://collector:4318", true),
            ("https://[::1]:4318/base", true),
            ("collector:4318", false),
            ("http://[::1", false),
            ("http://127.0.0.1:1/a b", false),
            ("http://", false),
            ("ftp://collector", false),
        ] {
            let told = target(Signal::Logs, &[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]);
            assert_eq!(told.is_ok(), is_one, "{url}");
        }
    }

    #[test]
    fn an_address_is_shown_without_name_password_and_query() {
        let shown = |url| {
            let told = target(Signal::Logs, &[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", url)]);
            told.map_or_else(|error| format!("{error:#}"), |target| target.shown)
        };
        for (url, wanted) in [
            (
                "http://u:pw123@collector:4318/a@b",
                "http://collector:4318/a@b",
            ),
            ("https://u%40x:pw123@[::1]/a?key=pw123", "https://[::1]/a"),
            ("https://pw123@collector", "https://collector/"),
            ("http://u:pw1@u:4318", "http://u:4318/"),
            ("http://u:@pw123@collector", "http://collector/"),
        ] {
            assert_eq!(shown(url), wanted);
        }
        for url in [
            "u:pw123@collector:4318",
            "ftp://u:pw123@collector",
            "http://u:p/pw123@collector",
            "http://u:pw123/b@collector",
            "http://u:pw123?b@collector",
            "http://u:pw123 b@collector",
            "u?pw123",
        ] {
            let told = shown(url);
            assert!(
                !told.contains("pw123") && told.contains("no address"),
                "{told}"
            );
        }
    }

    /// The rules of the specification ("OpenTelemetry Protocol Exporter").
    #[test]
    fn variables_of_a_signal_come_before_the_common_ones() {
        let usual = target(Signal::Logs, &[]).expect("no variables");
        assert_eq!(usual.url, "http://localhost:4318/v1/logs");
        assert_eq!((usual.timeout, usual.certificates), (Some(TIMEOUT), None));
        assert!(!usual.is_packed && usual.own.is_none());
        let usual = target(Signal::Profiles, &[]).expect("no variables");
        assert_eq!(usual.url, "http://localhost:4318/v1development/profiles");
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:1/base/"),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://logs:2/as/it/is"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a=b%20c, authorization=Bearer%3D",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
        ];
        let metrics = target(Signal::Metrics, &all).expect("valid");
        assert_eq!(metrics.url, "https://collector:1/base/v1/metrics");
        assert_eq!(metrics.timeout, Some(Duration::from_millis(250)));
        let pairs = [("a", "b c"), ("authorization", "Bearer=")];
        assert_eq!(
            metrics.headers,
            pairs.map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        let logs = target(Signal::Logs, &all).expect("valid");
        assert_eq!(logs.url, "http://logs:2/as/it/is");
        assert_eq!(logs.timeout, Some(TIMEOUT));
        let endless = target(Signal::Logs, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]);
        assert_eq!(endless.expect("it is no limit").timeout, None);
        assert_eq!((metrics.is_packed, logs.is_packed), (true, false));
    }

    #[test]
    fn what_can_not_be_followed_is_said_without_secrets() {
        let wrong = |name: &str, value: &str| {
            let error = target(Signal::Logs, &[(name, value)]).expect_err("it is wrong");
            format!("{error:#}")
        };
        assert!(wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").contains("grpc"));
        assert!(wrong("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317").contains("HTTP"));
        assert!(wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").contains("milliseconds"));
        assert!(wrong("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd").contains("zstd"));
        assert!(wrong("OTEL_EXPORTER_OTLP_CLIENT_KEY", "a.pem").contains("CERTIFICATE"));
        for (headers, why) in [
            ("authorization:secret", "has no ="),
            ("secret a=b", "name has"),
            ("=secret", "name has"),
            ("s\u{e9}cret=secret", "name has"),
            ("a=b,authorization=secret%0D%0Aother: secret", "value has"),
            ("a=secret%00", "value has"),
        ] {
            let told = wrong("OTEL_EXPORTER_OTLP_HEADERS", headers);
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
    }
}
