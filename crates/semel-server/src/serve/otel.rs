//! Traces for collectors, by OTLP over HTTP.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio_rustls::rustls::crypto::ring;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, Registry};

use super::Error;

/// A layer that sends spans to a collector, and what sends the rest of them at the end.
pub(super) fn layer(
    endpoint: &str,
) -> Result<(Box<dyn Layer<Registry> + Send + Sync>, SdkTracerProvider), Error> {
    // The exporter's HTTP client needs a default provider; one that was installed before is the same.
    drop(ring::default_provider().install_default());
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()
        .map_err(|error| Error::Logs(error.into()))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("semel").build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("semel"));
    Ok((layer.with_filter(LevelFilter::INFO).boxed(), provider))
}
