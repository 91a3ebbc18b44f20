//! Does its tasks with rust-rdkafka and the librdkafka that it brings.
//!
//! ```text
//! rdkafka produce  BOOTSTRAP TOPIC COUNT CODEC
//! rdkafka consume  BOOTSTRAP TOPIC COUNT GROUP
//! rdkafka transact BOOTSTRAP TOPIC COUNT
//! rdkafka copy     BOOTSTRAP TOPIC COUNT GROUP TARGET
//! ```
//!
//! CLIENT_CA, CLIENT_CERTIFICATE (with its key), CLIENT_USER and CLIENT_PASSWORD of the environment
//! let it connect with TLS, with a certificate and with SCRAM-SHA-512.

use std::env::var;
use std::error::Error;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CALL: Duration = Duration::from_secs(60);

struct Task {
    bootstrap: String,
    topic: String,
    count: usize,
    rest: Vec<String>,
}

fn main() -> Outcome<()> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("a word is missing");
    let verb = word()?;
    let (bootstrap, topic, count) = (word()?, word()?, word()?.parse()?);
    let task = Task {
        bootstrap,
        topic,
        count,
        rest: words.collect(),
    };
    match verb.as_str() {
        "produce" => produce(&task),
        "consume" => consume(&task),
        "transact" => transact(&task),
        "copy" => copy(&task),
        other => Err(format!("cannot {other}").into()),
    }
}

fn connecting(task: &Task) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &task.bootstrap);
    if let Ok(authority) = var("CLIENT_CA") {
        config.set("security.protocol", "ssl");
        config.set("ssl.ca.location", authority);
    }
    if let Ok(own) = var("CLIENT_CERTIFICATE") {
        config.set("ssl.certificate.location", &own);
        config.set("ssl.key.location", own);
    }
    if let (Ok(user), Ok(password)) = (var("CLIENT_USER"), var("CLIENT_PASSWORD")) {
        config.set("security.protocol", "sasl_ssl");
        config.set("sasl.mechanism", "SCRAM-SHA-512");
        config.set("sasl.username", user);
        config.set("sasl.password", password);
    }
    config
}

fn producer(task: &Task, settings: &[(&str, &str)]) -> Outcome<BaseProducer> {
    let mut config = connecting(task);
    config.set("enable.idempotence", "true");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    Ok(config.create()?)
}

fn send_all(producer: &BaseProducer, task: &Task, prefix: &str) -> Outcome<()> {
    for index in 0..task.count {
        let (key, value) = (format!("key-{}", index % 10), format!("{prefix}-{index}"));
        let number = index.to_string();
        send(
            producer,
            &task.topic,
            key.as_bytes(),
            value.as_bytes(),
            number.as_bytes(),
        )?;
    }
    Ok(producer.flush(CALL)?)
}

fn send(
    producer: &BaseProducer,
    topic: &str,
    key: &[u8],
    value: &[u8],
    index: &[u8],
) -> Outcome<()> {
    let headers = OwnedHeaders::new().insert(Header {
        key: "index",
        value: Some(index),
    });
    let record = BaseRecord::to(topic)
        .key(key)
        .payload(value)
        .headers(headers);
    producer.send(record).map_err(|(error, _)| error)?;
    Ok(())
}

fn produce(task: &Task) -> Outcome<()> {
    send_all(
        &producer(task, &[("compression.type", &task.rest[0])])?,
        task,
        "value",
    )
}

fn transact(task: &Task) -> Outcome<()> {
    let producer = producer(task, &[("transactional.id", &task.topic)])?;
    producer.init_transactions(CALL)?;
    for (prefix, is_kept) in [("kept", true), ("dropped", false), ("later", true)] {
        producer.begin_transaction()?;
        send_all(&producer, task, prefix)?;
        if is_kept {
            producer.commit_transaction(CALL)?;
        } else {
            producer.abort_transaction(CALL)?;
        }
    }
    Ok(())
}

fn consumer(task: &Task) -> Outcome<BaseConsumer> {
    let consumer: BaseConsumer = connecting(task)
        .set("group.id", &task.rest[0])
        .set("session.timeout.ms", "6000")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    consumer.subscribe(&[&task.topic])?;
    Ok(consumer)
}

fn take<'a>(consumer: &'a BaseConsumer) -> Outcome<BorrowedMessage<'a>> {
    Ok(consumer.iter().next().ok_or("no record came")??)
}

fn index<'a>(message: &'a BorrowedMessage<'_>) -> &'a [u8] {
    let found = message
        .headers()
        .and_then(|all| all.iter().find(|one| one.key == "index"));
    found.and_then(|one| one.value).unwrap_or_default()
}

fn consume(task: &Task) -> Outcome<()> {
    let consumer = consumer(task)?;
    for _ in 0..task.count {
        let message = take(&consumer)?;
        println!(
            "{}\t{}\t{}\t{}\t{}",
            message.partition(),
            message.offset(),
            String::from_utf8_lossy(message.key().unwrap_or_default()),
            String::from_utf8_lossy(message.payload().unwrap_or_default()),
            String::from_utf8_lossy(index(&message)),
        );
        consumer.commit_message(&message, CommitMode::Sync)?;
    }
    Ok(())
}

fn copy(task: &Task) -> Outcome<()> {
    let (consumer, target) = (consumer(task)?, &task.rest[1]);
    let producer = producer(task, &[("transactional.id", &task.rest[0])])?;
    producer.init_transactions(CALL)?;
    for _ in 0..task.count {
        let message = take(&consumer)?;
        let (key, value) = (message.key().unwrap_or_default(), message.payload());
        producer.begin_transaction()?;
        send(
            &producer,
            target,
            key,
            value.unwrap_or_default(),
            index(&message),
        )?;
        let group = consumer.group_metadata().ok_or("not in the group")?;
        producer.send_offsets_to_transaction(&consumer.position()?, &group, CALL)?;
        producer.commit_transaction(CALL)?;
    }
    Ok(())
}
