//! What of a certificate is looked at beside its signatures: the name of its owner, and its time.

use std::net::IpAddr;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::UsernameFromCert;
use crate::time::Wall;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Longest name that is taken from a certificate.
const NAME_BYTES_MAX: usize = 256;

/// When a certificate holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Validity {
    pub not_before: Wall,
    pub not_after: Wall,
}

/// `None` for what is no certificate.
pub(super) fn validity(der: &[u8]) -> Option<Validity> {
    let certificate = Certificate::from_der(der).ok()?;
    let validity = certificate.tbs_certificate.validity;
    let wall = |time: x509_cert::time::Time| {
        Wall(u64::try_from(time.to_unix_duration().as_millis()).unwrap_or(u64::MAX))
    };
    Some(Validity { not_before: wall(validity.not_before), not_after: wall(validity.not_after) })
}

/// The names under which clients may reach a server with this certificate: DNS names and addresses. The common name is
/// none of them, as no client of today looks at it.
pub(super) fn server_names(der: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some((_, names))) = certificate.tbs_certificate.get::<SubjectAltName>() else { return Vec::new() };
    let named = names.0.iter().filter_map(|name| match name {
        GeneralName::DnsName(text) => Some(text.as_str().to_owned()),
        GeneralName::IpAddress(octets) => {
            let octets = octets.as_bytes();
            let address = <[u8; 4]>::try_from(octets).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()?;
            Some(address.to_string())
        }
        _ => None,
    });
    named.collect()
}

/// The user name in a client's certificate, whose signature was checked. `None` when it has none that is fit.
#[must_use]
pub fn client_name(der: &[u8], from: UsernameFromCert) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let name = match from {
        UsernameFromCert::None => None,
        UsernameFromCert::Cn => common_name(&certificate),
        UsernameFromCert::San => alternative_name(&certificate),
    }?;
    let is_fit = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control);
    is_fit.then_some(name)
}

/// The first common name of the subject, as Mosquitto takes it.
fn common_name(certificate: &Certificate) -> Option<String> {
    let names = certificate.tbs_certificate.subject.0.iter();
    let value = names.flat_map(|set| set.0.iter()).find(|attribute| attribute.oid == COMMON_NAME)?;
    let value = &value.value;
    let text = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let text =
        text.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()));
    let text = text.or_else(|_| value.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned()));
    text.or_else(|_| value.decode_as::<TeletexStringRef<'_>>().map(|text| text.as_str().to_owned())).ok()
}

/// The first DNS name, e-mail address or URI, in the order of the certificate.
fn alternative_name(certificate: &Certificate) -> Option<String> {
    let (_, names) = certificate.tbs_certificate.get::<SubjectAltName>().ok()??;
    names.0.iter().find_map(|name| match name {
        GeneralName::DnsName(text) | GeneralName::Rfc822Name(text) => Some(text.as_str().to_owned()),
        GeneralName::UniformResourceIdentifier(text) => Some(text.as_str().to_owned()),
        _ => None,
    })
}
