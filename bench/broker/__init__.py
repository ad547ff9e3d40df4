"""The broker beside Apache Kafka."""
