import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consumes, transforms and produces in transactions, until it is killed.
 *
 * <p>ExactlyOnce BOOTSTRAP GROUP FROM TO GATE. The program of compat_tests/exactly_once_app.py, with the Java client: an
 * error of the client ends it.
 */
public final class ExactlyOnce {
  private static final int BATCH_RECORDS = 25;
  private static final Duration BATCH_WAIT = Duration.ofMillis(50);

  private ExactlyOnce() {}

  public static void main(String[] arguments) throws IOException {
    String bootstrap = arguments[0];
    String group = arguments[1];
    String[] gateAddress = arguments[4].split(":");
    try (Socket gate = new Socket(gateAddress[0], Integer.parseInt(gateAddress[1]));
        KafkaProducer<String, String> producer = producer(bootstrap, group);
        KafkaConsumer<String, String> consumer = consumer(bootstrap, group)) {
      producer.initTransactions();
      consumer.subscribe(List.of(arguments[2]));
      while (true) {
        ConsumerRecords<String, String> found = consumer.poll(BATCH_WAIT);
        if (found.isEmpty()) {
          continue;
        }
        producer.beginTransaction();
        for (ConsumerRecord<String, String> one : found) {
          producer.send(new ProducerRecord<>(arguments[3], one.partition(), one.key(), "done:" + one.value()));
        }
        producer.sendOffsetsToTransaction(found.nextOffsets(), consumer.groupMetadata());
        producer.flush();
        askLeave(gate);
        producer.commitTransaction();
      }
    }
  }

  private static void askLeave(Socket gate) throws IOException {
    gate.getOutputStream().write('\n');
    if (gate.getInputStream().read() < 0) {
      throw new EOFException("the test that holds the gate has ended");
    }
  }

  private static KafkaProducer<String, String> producer(String bootstrap, String group) {
    Map<String, Object> config = new HashMap<>();
    config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, group);
    config.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 60_000);
    return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
  }

  private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
    Map<String, Object> config = new HashMap<>();
    config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    config.put(ConsumerConfig.GROUP_ID_CONFIG, group);
    config.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, group);
    config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
    config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
    config.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, BATCH_RECORDS);
    config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 60_000);
    config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 1_000);
    return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
  }
}
