"""The workloads for asv, which times them from commit to commit; `asv.conf.json` points here."""
