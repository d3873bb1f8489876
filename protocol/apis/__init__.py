"""One file an API key, as in Kafka's own table. Each begins with what the API is for and which errors mean what."""
