# The server in a container. To build it: docker build --tag semel .
#
#   docker run -p 7700:7700 -v semel:/var/lib/semel -e SEMEL_ROOT_TOKEN=… semel
#   docker run -p 7700:7700 -e SEMEL_ROOT_TOKEN=… -e SEMEL_STORE=postgres://semel@db/semel semel
#
# Settings are environment variables: see deploy/semel.toml. A public server should have TLS, or a proxy that ends it.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /semel
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY docs docs
COPY vectors vectors
RUN cargo build --release --locked --package semel-server --features tasks

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0700 -o 10001 -g 10001 /var/lib/semel
COPY --from=build /semel/target/release/semel /usr/local/bin/semel
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/semel/
USER 10001:10001
WORKDIR /var/lib/semel
VOLUME /var/lib/semel
ENV SEMEL_LISTEN=0.0.0.0:7700
ENV SEMEL_STORE=sqlite:/var/lib/semel/semel.db
EXPOSE 7700
STOPSIGNAL SIGTERM
# The server answers and takes work. Exit code 6 says that only a token is missing, which the check need not have. With TLS set
# SEMEL_URL to a name of the certificate.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["sh", "-c", "semel doctor >/dev/null 2>&1 || [ $? -eq 6 ]"]
ENTRYPOINT ["semel"]
CMD ["serve"]
