//! TLS to engines: whom to trust, and words for each way in which it fails.
//!
//! It must not know HTTP. Invariants: an engine is believed only when its certificate names the host
//! that was asked, is valid now, and was signed by an authority of this system or of `--engine-ca`, or
//! is itself in that file; there is no way to switch this off. TLS 1.2 and 1.3.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::file;
use super::system_ca::{self, MAX_FILE};
use crate::model::text;

/// Certificates of `--engine-ca`, trusted besides those of the system.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

/// Why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The system's words.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Far too long.
    #[error("it is longer than {} MiB: not a file of certificates", MAX_FILE >> 20)]
    TooLong,
    /// Another format, or a key.
    #[error("no certificate is in it: PEM is needed (-----BEGIN CERTIFICATE-----)")]
    None,
    /// What stands between the marks is no certificate.
    #[error("certificate {0} in it is damaged")]
    Damaged(usize),
}

impl Authorities {
    /// Reads the certificates of a PEM file; what else is in it is passed over.
    pub fn read(path: &Path) -> Result<Self, AuthoritiesError> {
        let pem = file::read(file::open(path)?, MAX_FILE)?.ok_or(AuthoritiesError::TooLong)?;
        Self::parse(&pem)
    }

    fn parse(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let (mut found, mut roots) = (Vec::new(), RootCertStore::empty());
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let damaged = AuthoritiesError::Damaged(found.len() + 1);
            let Ok(certificate) = certificate else { return Err(damaged) };
            if roots.add(certificate.clone()).is_err() {
                return Err(damaged);
            }
            found.push(certificate);
        }
        if found.is_empty() { Err(AuthoritiesError::None) } else { Ok(Self(found.into())) }
    }

    /// Each certificate as DER.
    pub(super) fn der(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Certificates that were read and checked before.
    pub(super) fn of_der(der: Vec<Vec<u8>>) -> Self {
        Self(der.into_iter().map(CertificateDer::from).collect())
    }
}

/// How to speak TLS. The system's authorities are read only when `system`: it takes milliseconds.
pub fn config(given: &Authorities, system: bool) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    if system {
        // What cannot be read is not trusted; the words for an unknown issuer say so, and what to do.
        roots.add_parsable_certificates(system_ca::certificates().iter().cloned());
    }
    roots.add_parsable_certificates(given.0.iter().cloned());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().ok();
    let verifier = Verifier { signed, given: given.clone(), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The usual rules, and one more: a certificate that is itself in `--engine-ca` is trusted even when it
/// is an authority's, which is what `openssl req -x509` makes unless told otherwise.
#[derive(Debug)]
struct Verifier {
    /// `None` without any authority.
    signed: Option<Arc<WebPkiServerVerifier>>,
    given: Authorities,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Err(CertificateError::UnknownIssuer.into()) };
        match signed.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // By then its dates were found to be good; its name is looked at last and was not.
            Err(error) if is_authority(&error) && self.given.0.iter().any(|given| given == certificate) => {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate was refused for being an authority's, not a server's.
fn is_authority(error: &Error) -> bool {
    // The verifier's own error type is not public here, its name is what it displays.
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == "CaUsedAsEndEntity")
}

/// Why there is no TLS connection. The text is for the screen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsTrouble {
    /// No chain to an authority.
    #[error(
        "its certificate is from an authority that this host does not trust: give that authority's certificate (or a \
         self-signed one itself) with --engine-ca FILE{}",
        system_ca::trouble()
    )]
    UnknownIssuer,
    /// An authority of that name is trusted, but it has another key.
    #[error("its certificate was not signed by the authority it names: is the file of --engine-ca out of date?")]
    Signature,
    /// Not valid any more, for so many days.
    #[error("its certificate expired {0} days ago: renew it, or set the clock of this host")]
    Expired(u64),
    /// Not valid yet.
    #[error("its certificate is not valid yet: set the clocks of both hosts")]
    NotYet,
    /// For other hosts; some of them.
    #[error("its certificate is not for this host name but for {0}: use that name in --engine URL, or issue another")]
    WrongName(String),
    /// An authority's own.
    #[error("its certificate is an authority's, not a server's: give it with --engine-ca FILE to trust it as it is")]
    Authority,
    /// Any other defect.
    #[error("its certificate cannot be used ({0}): issue another")]
    Certificate(String),
    /// What came is no TLS.
    #[error("https was asked, but what answers is not TLS: write http:// or another port")]
    NotTls,
    /// It went away.
    #[error("the connection ended in the TLS handshake: does this port speak TLS, and TLS 1.2 or newer?")]
    Ended,
    /// It wants to know who asks.
    #[error("it wants a client certificate, which warptop cannot give: use a gateway that takes a key instead")]
    ClientCertificate,
    /// Nothing in common.
    #[error("no common version or cipher of TLS: the engine must speak TLS 1.2 or newer")]
    Incompatible,
    /// The other side gave up.
    #[error("the other side refused the TLS handshake ({0}): is the host name right?")]
    Refused(String),
}

impl From<&Error> for TlsTrouble {
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(_) if is_authority(error) => Self::Authority,
            Error::InvalidCertificate(defect) => Self::of_certificate(defect),
            Error::InvalidMessage(_) => Self::NotTls,
            Error::AlertReceived(AlertDescription::CertificateRequired) => Self::ClientCertificate,
            Error::PeerIncompatible(_)
            | Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity) => {
                Self::Incompatible
            }
            Error::AlertReceived(alert) => Self::Refused(format!("{alert:?}")),
            other => Self::Refused(text::clean(&other.to_string()).chars().take(60).collect()),
        }
    }
}

impl TlsTrouble {
    fn of_certificate(defect: &CertificateError) -> Self {
        match defect {
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::BadSignature => Self::Signature,
            CertificateError::ExpiredContext { time, not_after } => {
                Self::Expired(time.as_secs().saturating_sub(not_after.as_secs()) / 86_400)
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYet,
            CertificateError::NotValidForNameContext { presented, .. } => Self::WrongName(names(presented)),
            other => Self::Certificate(text::clean(&other.to_string()).chars().take(60).collect()),
        }
    }
}

/// Some of the names in a certificate, which come as `DnsName("gpu7")`.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name.split_once('(').map_or(name.as_str(), |(_, inner)| inner.trim_end_matches(')'));
        text::clean(inner.trim_matches('"')).chars().take(60).collect::<String>()
    };
    match presented {
        [] => "none at all".to_owned(),
        [one] => bare(one),
        [one, other] => format!("{} and {}", bare(one), bare(other)),
        [one, other, ..] => format!("{}, {} and others", bare(one), bare(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_certificates() {
        let one = rcgen::generate_simple_self_signed(["gpu7".to_owned()]).unwrap();
        let pem = one.cert.pem();
        let read = |text: &str| Authorities::parse(text.as_bytes());
        assert_eq!(read(&pem).unwrap().0.len(), 1);
        let key = one.signing_key.serialize_pem();
        assert_eq!(read(&format!("# two\n{pem}{key}{pem}")).unwrap().0.len(), 2, "other sections are passed over");
        for nothing in ["", "hello", key.as_str()] {
            assert!(matches!(read(nothing), Err(AuthoritiesError::None)), "{nothing}");
        }
        let broken = pem.replacen("MI", "AA", 1);
        let words = read(&format!("{pem}{broken}")).unwrap_err().to_string();
        assert_eq!(words, "certificate 2 in it is damaged");
        assert!(matches!(Authorities::read(Path::new("/no/such")), Err(AuthoritiesError::Io(_))));
        assert!(matches!(Authorities::read(Path::new("/dev/zero")), Err(AuthoritiesError::TooLong)));
    }

    #[test]
    fn names_of_a_certificate() {
        let names = |list: &[&str]| names(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names(&[]), "none at all");
        assert_eq!(names(&["DnsName(\"a\u{1b}[31m\")", "IpAddress(10.0.0.1)"]), "a and 10.0.0.1");
        assert_eq!(names(&["DnsName(\"a\")"; 9]), "a, a and others");
    }
}
