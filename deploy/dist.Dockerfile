# The image from a release: no compiler, and the very program that the checksums name. In the unpacked archive of
# `cargo xtask dist --target x86_64-unknown-linux-musl` (there it is called Dockerfile):  docker build -t IMAGE .
FROM debian:bookworm-slim
COPY paceline /usr/local/bin/paceline
# The Trainer's variables need a shell, which the base has. Run folders go to a mounted volume; tasks need no root.
USER 1000
ENTRYPOINT ["/usr/local/bin/paceline"]
