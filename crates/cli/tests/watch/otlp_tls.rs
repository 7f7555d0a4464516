//! TLS, headers and compression, as the variables of OpenTelemetry say. The certificate authorities are made here.

use crate::receiver::{Receiver, Reply};
use crate::records::can_watch;
use crate::sending::{METRICS, said, sending_to, times, times_of, told};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// A certificate authority, in a file of its own.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a certificate");
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).expect("written");
        Self { issuer, file }
    }

    /// A certificate of this name, and its key.
    fn certificate(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let signed = parameters.signed_by(&key, &self.issuer);
        (signed.expect("a certificate"), key)
    }

    /// How a server at 127.0.0.1 shows a certificate of this authority. It takes those clients alone that show
    /// one of `clients`, if there is one.
    fn server(&self, clients: Option<&Self>) -> ServerConfig {
        let (certificate, key) = self.certificate("127.0.0.1");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("known");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.issuer.der().clone()).expect("valid");
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("valid"))
            }
        };
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("valid");
        builder.with_single_cert(chain, key).expect("valid")
    }
}

/// A short watch that sends to a receiver by TLS.
fn short(receiver: &Receiver) -> Command {
    let endpoint = format!("https://127.0.0.1:{}", receiver.port);
    sending_to(&endpoint, &["--once", "500ms", "--pid", "1"])
}

/// It could not send anything, and has said so.
fn is_refused(output: &Output, receiver: &Receiver) {
    assert!(receiver.log.asked().is_empty());
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = said(output);
    assert!(said.contains("can't be reached"), "{said}");
    assert!(
        said.contains("otlp-metrics: 1 batch could not be sent and is lost"),
        "{said}"
    );
}

#[test]
fn a_receiver_with_a_known_authority_gets_packed_batches_with_headers() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(folder.path(), "authority");
    let receiver = Receiver::start_tls(authority.server(None), |_| Reply::of(200));
    let mut command = short(&receiver);
    command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", &authority.file);
    command.env(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "X-Tenant=a%20b,Authorization=Bearer%3D",
    );
    command.env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
    let told = told(&command.output().expect("it starts"));
    assert_eq!(times_of(&receiver.log.taken(METRICS)), times(&told));
    for (request, _) in receiver.log.asked() {
        assert_eq!(request.header("x-tenant"), Some("a b"));
        assert_eq!(request.header("authorization"), Some("bearer="));
        assert_eq!(request.header("content-encoding"), Some("gzip"));
    }
}

#[test]
fn a_receiver_with_another_authority_gets_nothing() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(folder.path(), "authority");
    let other = Authority::new(folder.path(), "other");
    let receiver = Receiver::start_tls(authority.server(None), |_| Reply::of(200));
    // One that is named, and those that are trusted usually.
    for file in [Some(&other.file), None] {
        let mut command = short(&receiver);
        command.envs(file.map(|file| ("OTEL_EXPORTER_OTLP_CERTIFICATE", file)));
        let output = command.output().expect("it starts");
        is_refused(&output, &receiver);
        let said = said(&output);
        assert!(said.to_lowercase().contains("certificate"), "{said}");
    }
}

#[test]
fn a_receiver_that_wants_a_certificate_is_shown_the_one_of_the_variables() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(folder.path(), "authority");
    let clients = Authority::new(folder.path(), "clients");
    let receiver = Receiver::start_tls(authority.server(Some(&clients)), |_| Reply::of(200));
    let (certificate, key) = clients.certificate("watch");
    let files = [
        ("own.pem", certificate.pem()),
        ("own.key", key.serialize_pem()),
    ];
    let [own, own_key] = files.map(|(name, text)| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        file
    });
    let mut command = short(&receiver);
    command.env("OTEL_EXPORTER_OTLP_CERTIFICATE", &authority.file);
    is_refused(&command.output().expect("it starts"), &receiver);
    command.env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", own);
    command.env("OTEL_EXPORTER_OTLP_CLIENT_KEY", own_key);
    let told = told(&command.output().expect("it starts"));
    assert_eq!(times_of(&receiver.log.taken(METRICS)), times(&told));
}
