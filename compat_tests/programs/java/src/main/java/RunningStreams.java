import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/** Runs a topology of strings with an everyday configuration, until the process is ended. */
final class RunningStreams {
  private RunningStreams() {}

  static Properties config(
      String bootstrap, String application, String stateFolder, String... settings) {
    Properties config = new Properties();
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
    config.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(stateFolder).toString());
    config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
    for (String setting : settings) {
      String[] pair = setting.split("=", 2);
      config.put(pair[0], pair[1]);
    }
    return config;
  }

  /** Ends the process with status 1 if the topology fails, and prints every change of its state. */
  static void run(StreamsBuilder builder, Properties config) throws InterruptedException {
    CountDownLatch ended = new CountDownLatch(1);
    KafkaStreams streams = new KafkaStreams(builder.build(config), config);
    streams.setStateListener((now, before) -> {
      if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
        ended.countDown();
      }
      System.out.println(now);
    });
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
    ended.await();
    System.exit(streams.state() == KafkaStreams.State.ERROR ? 1 : 0);
  }
}
