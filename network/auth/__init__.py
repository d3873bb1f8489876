"""TLS and the SASL mechanisms: PLAIN, SCRAM, OAUTHBEARER and GSSAPI."""
